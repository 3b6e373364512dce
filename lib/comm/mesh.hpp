// The rank mesh as pure arithmetic: axes pipe x data x tensor, the last one fastest, so that the ranks of a tensor
// group are neighbours (usually on one host) and pipeline stages lie furthest apart.
#pragma once
#include <vector>

namespace dslaunch::comm {

enum class Axis { kPipe, kData, kTensor };

struct MeshShape {
  int pipe = 1, data = 1, tensor = 1;
};

struct MeshCoordinates {
  int pipe = 0, data = 0, tensor = 0;
  bool operator==(const MeshCoordinates&) const = default;
};

class Mesh {
 public:
  explicit Mesh(MeshShape shape);

  const MeshShape& shape() const { return shape_; }
  int size() const { return shape_.pipe * shape_.data * shape_.tensor; }
  int extent(Axis axis) const;

  MeshCoordinates coordinates(int rank) const;
  int rank_of(const MeshCoordinates& at) const;
  // Position of `rank` along `axis`, which is its rank within the group.
  int position(int rank, Axis axis) const;
  // The ranks that differ from `rank` in `axis` only, ascending, `rank` itself among them.
  std::vector<int> group_of(int rank, Axis axis) const;
  // All groups of an axis, ordered by their first ranks.
  std::vector<std::vector<int>> groups(Axis axis) const;

 private:
  int stride(Axis axis) const;

  MeshShape shape_;
};

// The data axis takes what `pipe` and `tensor` leave. Throws UserError(78) when they do not divide the world.
MeshShape plan_mesh(int world_size, int pipe, int tensor);

}  // namespace dslaunch::comm
