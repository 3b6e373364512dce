#include "runtime/engine/step/shape_buckets.hpp"

#include <catch2/catch.hpp>
#include <vector>

using namespace dslaunch::runtime::engine::step;
using Action = ShapeBuckets::Action;

namespace {

Action act(ShapeBuckets& buckets, int64_t key) {
  return buckets.plan({key}).action;
}

// All slots are taken by the keys 1, 2, ...
void fill(ShapeBuckets& buckets) {
  for (int64_t key = 1; key <= static_cast<int64_t>(ShapeBuckets::kMaxGraphs); ++key) {
    CHECK(act(buckets, key) == Action::kLaunch);
    CHECK(act(buckets, key) == Action::kCapture);
  }
}

}  // namespace

TEST_CASE("shapes are launched first, then captured, then replayed", "[engine][shape_buckets]") {
  ShapeBuckets buckets(/*captures_first=*/false);
  CHECK(act(buckets, 1) == Action::kLaunch);
  CHECK(act(buckets, 2) == Action::kLaunch);
  CHECK(act(buckets, 1) == Action::kCapture);
  CHECK(act(buckets, 1) == Action::kReplay);
  CHECK(act(buckets, 2) == Action::kCapture);
  CHECK(buckets.plan({1}).slot == 0);
  CHECK(buckets.plan({2}).slot == 1);
}

TEST_CASE("the shapes of the steps before are captured at once", "[engine][shape_buckets]") {
  ShapeBuckets buckets(/*captures_first=*/true);
  CHECK(act(buckets, 1) == Action::kCapture);
  CHECK(act(buckets, 1) == Action::kReplay);
  CHECK(act(buckets, 2) == Action::kLaunch);
}

TEST_CASE("a graph that was not replayed for long makes room", "[engine][shape_buckets]") {
  ShapeBuckets buckets(/*captures_first=*/false);
  fill(buckets);
  const int64_t other = 1000;
  // All graphs are in use: more shapes in turn than graphs are launched.
  for (int round = 0; round < 5; ++round) {
    for (int64_t key = 1; key <= static_cast<int64_t>(ShapeBuckets::kMaxGraphs); ++key) {
      CHECK(act(buckets, key) == Action::kReplay);
    }
    CHECK(act(buckets, other) == Action::kLaunch);
  }
  for (int64_t step = 0; step < ShapeBuckets::kMinIdleSteps; ++step) {
    for (const int64_t key : {1, 2, 4, 5, 6, 7, 8}) act(buckets, key);  // not 3
  }
  const auto plan = buckets.plan({other});
  CHECK(plan.action == Action::kCapture);
  CHECK(plan.slot == 2);
  CHECK(act(buckets, 4) == Action::kReplay);
  CHECK(act(buckets, 3) == Action::kLaunch);  // and no graph is idle
  CHECK(act(buckets, 3) == Action::kLaunch);
}

TEST_CASE("after a failure nothing more is captured", "[engine][shape_buckets]") {
  ShapeBuckets buckets(/*captures_first=*/true);
  CHECK(act(buckets, 1) == Action::kCapture);
  CHECK(act(buckets, 2) == Action::kLaunch);
  CHECK(act(buckets, 2) == Action::kCapture);
  buckets.stop_capturing();
  CHECK(act(buckets, 1) == Action::kReplay);
  for (int i = 0; i < 3; ++i) CHECK(act(buckets, 2) == Action::kLaunch);
}

TEST_CASE("shapes that never return are forgotten", "[engine][shape_buckets]") {
  ShapeBuckets buckets(/*captures_first=*/false);
  const auto many = static_cast<int64_t>(ShapeBuckets::kMaxKnown);
  for (int64_t key = 0; key <= many; ++key) CHECK(act(buckets, key) == Action::kLaunch);
  CHECK(act(buckets, 0) == Action::kLaunch);
  CHECK(act(buckets, many) == Action::kCapture);
}
