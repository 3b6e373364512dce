#include "comm/mesh.hpp"

#include <catch2/catch.hpp>

#include "base/error.hpp"

using namespace dslaunch::comm;
using Groups = std::vector<std::vector<int>>;

TEST_CASE("the groups of a 2x2x2 mesh are DeepSpeed's", "[comm][mesh]") {
  Mesh mesh({2, 2, 2});
  CHECK(mesh.size() == 8);
  CHECK(mesh.groups(Axis::kPipe) == Groups{{0, 4}, {1, 5}, {2, 6}, {3, 7}});
  CHECK(mesh.groups(Axis::kData) == Groups{{0, 2}, {1, 3}, {4, 6}, {5, 7}});
  CHECK(mesh.groups(Axis::kTensor) == Groups{{0, 1}, {2, 3}, {4, 5}, {6, 7}});
}

TEST_CASE("the groups of a pipe and data mesh are DeepSpeed's", "[comm][mesh]") {
  Mesh mesh({2, 3, 1});
  CHECK(mesh.groups(Axis::kPipe) == Groups{{0, 3}, {1, 4}, {2, 5}});
  CHECK(mesh.groups(Axis::kData) == Groups{{0, 1, 2}, {3, 4, 5}});
  CHECK(mesh.groups(Axis::kTensor) == Groups{{0}, {1}, {2}, {3}, {4}, {5}});
}

TEST_CASE("data parallelism alone is one group in order of rank", "[comm][mesh]") {
  Mesh mesh(plan_mesh(4, 1, 1));
  CHECK(mesh.group_of(2, Axis::kData) == std::vector<int>{0, 1, 2, 3});
  CHECK(mesh.position(2, Axis::kData) == 2);
}

TEST_CASE("ranks and coordinates map onto each other, and each rank is in its own group", "[comm][mesh]") {
  for (auto shape : {MeshShape{1, 1, 1}, MeshShape{3, 2, 4}, MeshShape{1, 5, 2}, MeshShape{4, 1, 3}}) {
    Mesh mesh(shape);
    for (int rank = 0; rank < mesh.size(); ++rank) {
      CHECK(mesh.rank_of(mesh.coordinates(rank)) == rank);
      for (auto axis : {Axis::kPipe, Axis::kData, Axis::kTensor}) {
        auto group = mesh.group_of(rank, axis);
        REQUIRE(static_cast<int>(group.size()) == mesh.extent(axis));
        CHECK(group[static_cast<size_t>(mesh.position(rank, axis))] == rank);
      }
    }
  }
}

TEST_CASE("a world that the axes do not divide is a contradiction", "[comm][mesh]") {
  CHECK(plan_mesh(12, 3, 2).data == 2);
  CHECK_THROWS_AS(plan_mesh(10, 3, 1), dslaunch::UserError);
  CHECK_THROWS_AS(plan_mesh(4, 0, 1), dslaunch::UserError);
  CHECK_THROWS_AS(Mesh({2, 2, 2}).coordinates(8), dslaunch::InternalError);
}
