// The arithmetic of the mesh, proved by trying every mesh of up to 64 ranks.
#include "comm/mesh.hpp"

#include <algorithm>
#include <catch2/catch.hpp>
#include <functional>
#include <set>
#include <vector>

#include "base/error.hpp"
#include "support/expect_error.hpp"

using namespace dslaunch;
using namespace dslaunch::comm;

namespace {

constexpr int kMaxRanks = 64;

const std::vector<MeshAxes> kKindsOfGroups{{},
                                           {.data = true},
                                           {.pipe = true},
                                           {.tensor = true},
                                           {.data = true, .pipe = true},
                                           {.data = true, .tensor = true},
                                           {.pipe = true, .tensor = true},
                                           {.data = true, .pipe = true, .tensor = true}};
constexpr MeshAxes kData{.data = true}, kPipe{.pipe = true}, kTensor{.tensor = true};

void for_every_mesh(const std::function<void(const Mesh&)>& check) {
  for (int data = 1; data <= kMaxRanks; ++data) {
    for (int pipe = 1; data * pipe <= kMaxRanks; ++pipe) {
      for (int tensor = 1; data * pipe * tensor <= kMaxRanks; ++tensor) check({data, pipe, tensor});
    }
  }
}

// One CHECK for each mesh, not for each of its ranks: Catch takes longer than the arithmetic.
void check_mesh(const Mesh& mesh, bool holds) {
  INFO("data " << mesh.data << ", pipe " << mesh.pipe << ", tensor " << mesh.tensor);
  CHECK(holds);
}

int length(const Mesh& mesh, const MeshAxes& axes) {
  return (axes.data ? mesh.data : 1) * (axes.pipe ? mesh.pipe : 1) * (axes.tensor ? mesh.tensor : 1);
}

// Every rank is in the group of each of its members, so groups are equal or disjoint, and all have the same size.
bool partitions_the_world(const Mesh& mesh, const MeshAxes& axes) {
  std::vector<std::vector<int>> by_index(static_cast<size_t>(mesh.size() / length(mesh, axes)));
  std::vector<std::vector<int>> in_order;
  for (int rank = 0; rank < mesh.size(); ++rank) {
    const auto group = mesh.group(rank, axes);
    if (static_cast<int>(group.size()) != length(mesh, axes)) return false;
    if (!std::is_sorted(group.begin(), group.end()) || !std::count(group.begin(), group.end(), rank)) return false;
    auto& known = by_index.at(static_cast<size_t>(mesh.group_index(rank, axes)));
    if (known.empty()) {
      known = group;
      in_order.push_back(group);
    }
    if (known != group) return false;
  }
  return in_order == by_index;
}

size_t num_common(const std::vector<int>& a, const std::vector<int>& b) {
  std::vector<int> common;
  std::set_intersection(a.begin(), a.end(), b.begin(), b.end(), std::back_inserter(common));
  return common.size();
}

// A rank's groups along different axes have only that rank in common, and together they reach the whole mesh.
bool is_orthogonal(const Mesh& mesh) {
  for (int rank = 0; rank < mesh.size(); ++rank) {
    const auto data = mesh.group(rank, kData), pipe = mesh.group(rank, kPipe), tensor = mesh.group(rank, kTensor);
    if (num_common(data, pipe) != 1 || num_common(data, tensor) != 1 || num_common(pipe, tensor) != 1) return false;
    if (num_common(mesh.group(rank, {.pipe = true, .tensor = true}), data) != 1) return false;
  }
  return true;
}

// As DeepSpeed's ProcessTopology: axes (pipe, data, model), row-major, the last one fastest.
std::vector<MeshCoordinates> deepspeed_order(const Mesh& mesh) {
  std::vector<MeshCoordinates> out;
  for (int pipe = 0; pipe < mesh.pipe; ++pipe) {
    for (int data = 0; data < mesh.data; ++data) {
      for (int model = 0; model < mesh.tensor; ++model) out.push_back({.data = data, .pipe = pipe, .tensor = model});
    }
  }
  return out;
}

std::set<std::vector<int>> groups_of(const Mesh& mesh, const MeshAxes& axes) {
  std::set<std::vector<int>> out;
  for (int rank = 0; rank < mesh.size(); ++rank) out.insert(mesh.group(rank, axes));
  return out;
}

}  // namespace

TEST_CASE("ranks and coordinates of a mesh are a bijection in DeepSpeed's order", "[comm][mesh]") {
  for_every_mesh([](const Mesh& mesh) {
    const auto order = deepspeed_order(mesh);
    bool holds = std::ssize(order) == mesh.size();
    for (int rank = 0; rank < mesh.size(); ++rank) {
      const auto& expected = order[static_cast<size_t>(rank)];
      holds = holds && mesh.coordinates(rank) == expected && mesh.rank_at(expected) == rank;
    }
    check_mesh(mesh, holds);
  });
}

TEST_CASE("each kind of group divides the world of a mesh", "[comm][mesh]") {
  for_every_mesh([](const Mesh& mesh) {
    check_mesh(mesh, std::all_of(kKindsOfGroups.begin(), kKindsOfGroups.end(),
                                 [&](const MeshAxes& axes) { return partitions_the_world(mesh, axes); }));
  });
}

TEST_CASE("groups of a mesh along different axes meet in exactly one rank", "[comm][mesh]") {
  for_every_mesh([](const Mesh& mesh) { check_mesh(mesh, is_orthogonal(mesh)); });
}

TEST_CASE("the position in a group of one axis is the coordinate on that axis", "[comm][mesh]") {
  for_every_mesh([](const Mesh& mesh) {
    bool holds = true;
    for (int rank = 0; rank < mesh.size(); ++rank) {
      const auto at = mesh.coordinates(rank);
      const auto is_at = [&](const MeshAxes& axes, int position) {
        return mesh.group(rank, axes).at(static_cast<size_t>(position)) == rank;
      };
      holds = holds && is_at(kData, at.data) && is_at(kPipe, at.pipe) && is_at(kTensor, at.tensor);
      holds = holds && is_at({.data = true, .pipe = true, .tensor = true}, rank) && is_at({}, 0);
    }
    check_mesh(mesh, holds);
  });
}

TEST_CASE("tensor groups of a mesh are consecutive, data groups and stages evenly apart", "[comm][mesh]") {
  for_every_mesh([](const Mesh& mesh) {
    const auto has_stride = [&](const MeshAxes& axes, int stride) {
      const auto group = mesh.group(mesh.size() - 1, axes);
      return std::adjacent_find(group.begin(), group.end(), [&](int a, int b) { return b - a != stride; }) ==
             group.end();
    };
    check_mesh(mesh,
               has_stride(kTensor, 1) && has_stride(kData, mesh.tensor) && has_stride(kPipe, mesh.data * mesh.tensor));
  });
}

TEST_CASE("the groups of a 2 x 2 x 2 mesh are those that DeepSpeed lists", "[comm][mesh]") {
  using Groups = std::set<std::vector<int>>;
  const Mesh mesh{2, 2, 2};
  CHECK(groups_of(mesh, kPipe) == Groups{{0, 4}, {1, 5}, {2, 6}, {3, 7}});
  CHECK(groups_of(mesh, kData) == Groups{{0, 2}, {1, 3}, {4, 6}, {5, 7}});
  CHECK(groups_of(mesh, kTensor) == Groups{{0, 1}, {2, 3}, {4, 5}, {6, 7}});
  CHECK(groups_of(mesh, {.pipe = true, .tensor = true}) == Groups{{0, 1, 4, 5}, {2, 3, 6, 7}});
}

TEST_CASE("a rank's place names what distinguishes it from ranks with the same part of the model", "[comm][mesh]") {
  CHECK(describe_place({.data = 4}, 3).empty());
  CHECK(describe_place({.data = 2, .pipe = 2}, 3) == "stage 1");
  CHECK(describe_place({.tensor = 2}, 1) == "tensor rank 1 of 2");
  CHECK(describe_place({.data = 2, .tensor = 2}, 3) == "tensor rank 1 of 2, data rank 1");
  CHECK(describe_place({.data = 2, .pipe = 2, .tensor = 2}, 3) == "tensor rank 1 of 2 of stage 0, data rank 1");
}

TEST_CASE("a mesh takes the data ranks that stages and tensor ranks leave", "[comm][mesh]") {
  for_every_mesh([](const Mesh& mesh) {
    const Mesh made = make_mesh(mesh.size(), mesh.pipe, mesh.tensor);
    check_mesh(mesh, made.data == mesh.data && made.pipe == mesh.pipe && made.tensor == mesh.tensor);
  });
}

TEST_CASE("a world that models do not divide is an error in numbers", "[comm][mesh]") {
  test::expect_error(ExitCode::kContradiction,
                     {"6 ranks", "one model takes 8 ranks", "2 pipeline stages x 4 tensor-parallel ranks",
                      "a multiple of 8 ranks, as 8"},
                     [] { make_mesh(6, 2, 4); });
  test::expect_error(ExitCode::kContradiction, {"1 rank:", "one model takes 2 ranks", "1 pipeline stage x 2"},
                     [] { make_mesh(1, 1, 2); });
  test::expect_error(ExitCode::kContradiction, {"takes 4611686014132420609 ranks"},
                     [] { make_mesh(8, 2147483647, 2147483647); });
}

TEST_CASE("ranks and coordinates outside a mesh are refused", "[comm][mesh]") {
  const Mesh mesh{3, 2, 2};
  for (int rank : {-1, 12}) CHECK_THROWS_AS(mesh.coordinates(rank), InternalError);
  CHECK_THROWS_AS(mesh.rank_at({.data = 3}), InternalError);
  CHECK_THROWS_AS(mesh.rank_at({.pipe = 2}), InternalError);
  CHECK_THROWS_AS(mesh.rank_at({.tensor = -1}), InternalError);
}
