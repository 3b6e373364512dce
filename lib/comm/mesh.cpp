#include "comm/mesh.hpp"

#include "base/error.hpp"
#include "base/format.hpp"
#include "config/data_ranks.hpp"

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

std::string describe_place(const Mesh& mesh, int rank) {
  if (mesh.pipe * mesh.tensor == 1) return {};
  const MeshCoordinates at = mesh.coordinates(rank);
  const std::string stage = mesh.pipe > 1 ? fmt::format("stage {}", at.pipe) : "";
  if (mesh.tensor == 1) return stage;
  return fmt::format("tensor rank {} of {}{}{}", at.tensor, mesh.tensor, stage.empty() ? "" : " of " + stage,
                     mesh.data > 1 ? fmt::format(", data rank {}", at.data) : "");
}

Mesh make_mesh(int world_size, int pipe, int tensor) {
  DSL_CHECK(world_size >= 1 && pipe >= 1 && tensor >= 1, "every axis of a mesh has at least one rank");
  const auto data = config::solve_data_ranks(world_size, pipe, tensor);
  if (!data.ok()) throw UserError(ExitCode::kContradiction, data.error());
  return {.data = *data, .pipe = pipe, .tensor = tensor};
}

}  // namespace dslaunch::comm
