// The communicators of a mesh, with threads as ranks.
#include "comm/groups.hpp"

#include <atomic>
#include <catch2/catch.hpp>
#include <vector>

#include "support/mesh_threads.hpp"

using namespace dslaunch;
using namespace dslaunch::comm;

namespace {

// The sum of the ranks' numbers in the group; 0 for none.
float sum_of_ranks(Communicator* group, int rank) {
  if (group == nullptr) return 0;
  auto value = static_cast<float>(rank);
  group->all_reduce({&value, 1, DType::kFloat32}, ReduceOp::kSum);
  return value;
}

struct Found {
  std::vector<float> sums;  // world, data, pipe, tensor
  std::vector<int> positions;
  bool data_is_world = false;
};

std::vector<Found> open_everywhere(const Mesh& mesh) {
  std::vector<Found> found(static_cast<size_t>(mesh.size()));
  test::run_mesh(mesh, [&](const Groups& groups) {
    const int rank = groups.world.rank();
    auto& own = found[static_cast<size_t>(rank)];
    own.data_is_world = &groups.data == &groups.world;
    for (auto* group : {&groups.world, &groups.data, groups.pipe, groups.tensor}) {
      own.sums.push_back(sum_of_ranks(group, rank));
      own.positions.push_back(group ? group->rank() : -1);
    }
  });
  return found;
}

}  // namespace

TEST_CASE("a job of data ranks has one communicator", "[comm][groups]") {
  const auto found = open_everywhere({.data = 3});
  for (const auto& rank : found) {
    CHECK(rank.data_is_world);
    CHECK(rank.sums == std::vector<float>{3, 3, 0, 0});
  }
  CHECK(found[2].positions == std::vector<int>{2, 2, -1, -1});
}

TEST_CASE("the communicators of a mesh connect the ranks of its groups", "[comm][groups]") {
  const auto found = open_everywhere({.data = 2, .pipe = 2, .tensor = 2});
  CHECK(found[0].sums == std::vector<float>{28, 0 + 2, 0 + 4, 0 + 1});
  CHECK(found[3].sums == std::vector<float>{28, 1 + 3, 3 + 7, 2 + 3});
  CHECK(found[6].sums == std::vector<float>{28, 4 + 6, 2 + 6, 6 + 7});
  CHECK(found[0].positions == std::vector<int>{0, 0, 0, 0});
  CHECK(found[3].positions == std::vector<int>{3, 1, 0, 1});
  CHECK(found[6].positions == std::vector<int>{6, 1, 1, 0});
}

TEST_CASE("a mesh without other data ranks has a data group of one", "[comm][groups]") {
  const auto found = open_everywhere({.data = 1, .pipe = 3});
  CHECK(found[1].sums == std::vector<float>{3, 1, 3, 0});
}

TEST_CASE("one rank contributes each data rank's loss", "[comm][groups]") {
  for (const Mesh& mesh : {Mesh{4, 1, 1}, Mesh{2, 1, 2}, Mesh{2, 2, 1}, Mesh{2, 2, 2}, Mesh{1, 3, 2}}) {
    std::atomic<int> losses{0};
    test::run_mesh(mesh, [&](const Groups& groups) { losses += groups.contributes_loss() ? 1 : 0; });
    CHECK(losses == mesh.data);
  }
}
