#include "comm/mesh.hpp"

#include "base/error.hpp"
#include "base/format.hpp"

namespace dslaunch::comm {

Mesh::Mesh(MeshShape shape) : shape_(shape) {
  DSL_CHECK(shape.pipe > 0 && shape.data > 0 && shape.tensor > 0, "an axis of the mesh has no ranks");
}

int Mesh::extent(Axis axis) const {
  return axis == Axis::kPipe ? shape_.pipe : axis == Axis::kData ? shape_.data : shape_.tensor;
}

int Mesh::stride(Axis axis) const {
  return axis == Axis::kPipe ? shape_.data * shape_.tensor : axis == Axis::kData ? shape_.tensor : 1;
}

MeshCoordinates Mesh::coordinates(int rank) const {
  DSL_CHECK(rank >= 0 && rank < size(), fmt::format("rank {} is not in a mesh of {}", rank, size()));
  return {position(rank, Axis::kPipe), position(rank, Axis::kData), position(rank, Axis::kTensor)};
}

int Mesh::rank_of(const MeshCoordinates& at) const {
  return at.pipe * stride(Axis::kPipe) + at.data * stride(Axis::kData) + at.tensor;
}

int Mesh::position(int rank, Axis axis) const {
  return rank / stride(axis) % extent(axis);
}

std::vector<int> Mesh::group_of(int rank, Axis axis) const {
  int first = rank - position(rank, axis) * stride(axis);
  std::vector<int> out;
  for (int i = 0; i < extent(axis); ++i) out.push_back(first + i * stride(axis));
  return out;
}

std::vector<std::vector<int>> Mesh::groups(Axis axis) const {
  std::vector<std::vector<int>> out;
  for (int rank = 0; rank < size(); ++rank) {
    if (position(rank, axis) == 0) out.push_back(group_of(rank, axis));
  }
  return out;
}

MeshShape plan_mesh(int world_size, int pipe, int tensor) {
  if (pipe < 1 || tensor < 1 || world_size < 1 || world_size % (pipe * tensor) != 0) {
    throw UserError(
        ExitCode::kContradiction,
        fmt::format("{} ranks cannot be split into {} pipeline stages times {} tensor ranks: the product must "
                    "divide the number of ranks",
                    world_size, pipe, tensor));
  }
  return {pipe, world_size / (pipe * tensor), tensor};
}

}  // namespace dslaunch::comm
