#include "comm/mesh.hpp"

#include <cstdint>

#include "base/error.hpp"
#include "base/format.hpp"

namespace dslaunch::comm {
namespace {

bool is_within(int index, int count) {
  return index >= 0 && index < count;
}

// The axes along which a group does not extend, as a mesh and the place in it: what distinguishes the groups.
Mesh across(const Mesh& mesh, const MeshAxes& axes) {
  return {axes.data ? 1 : mesh.data, axes.pipe ? 1 : mesh.pipe, axes.tensor ? 1 : mesh.tensor};
}
MeshCoordinates across(const MeshCoordinates& at, const MeshAxes& axes) {
  return {axes.data ? 0 : at.data, axes.pipe ? 0 : at.pipe, axes.tensor ? 0 : at.tensor};
}

}  // namespace

int Mesh::rank_at(const MeshCoordinates& at) const {
  DSL_CHECK(is_within(at.data, data) && is_within(at.pipe, pipe) && is_within(at.tensor, tensor),
            "coordinates lie within the mesh");
  return (at.pipe * data + at.data) * tensor + at.tensor;
}

MeshCoordinates Mesh::coordinates(int rank) const {
  DSL_CHECK(is_within(rank, size()), "a rank lies within the mesh");
  return {.data = rank / tensor % data, .pipe = rank / tensor / data, .tensor = rank % tensor};
}

std::vector<int> Mesh::group(int rank, const MeshAxes& axes) const {
  const MeshCoordinates own = across(coordinates(rank), axes);
  std::vector<int> ranks;
  for (int other = 0; other < size(); ++other) {
    if (across(coordinates(other), axes) == own) ranks.push_back(other);
  }
  return ranks;
}

int Mesh::group_index(int rank, const MeshAxes& axes) const {
  return across(*this, axes).rank_at(across(coordinates(rank), axes));
}

Mesh make_mesh(int world_size, int pipe, int tensor) {
  DSL_CHECK(world_size >= 1 && pipe >= 1 && tensor >= 1, "every axis of a mesh has at least one rank");
  const int64_t model = int64_t{pipe} * tensor;
  if (world_size % model != 0) {
    throw UserError(ExitCode::kContradiction,
                    fmt::format("cannot divide the job into models: {} rank{}: one model takes {} ranks ({} pipeline "
                                "stage{} x {} tensor-parallel rank{}); start a multiple of {} ranks",
                                world_size, world_size == 1 ? "" : "s", model, pipe, pipe == 1 ? "" : "s", tensor,
                                tensor == 1 ? "" : "s", model));
  }
  return {.data = static_cast<int>(world_size / model), .pipe = pipe, .tensor = tensor};
}

}  // namespace dslaunch::comm
