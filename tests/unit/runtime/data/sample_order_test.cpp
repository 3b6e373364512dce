#include "runtime/data/sample_order.hpp"

#include <catch2/catch.hpp>
#include <limits>
#include <set>

using namespace dslaunch::runtime;

namespace {

using Samples = std::vector<int64_t>;

TrainingPlanner planner(int64_t num_samples, BatchShape shape, int rank, bool shuffle, bool drop_last,
                        DataPosition start = {}) {
  return TrainingPlanner(
      {.num_samples = num_samples, .shape = shape, .rank = rank, .shuffle = shuffle, .seed = 7, .drop_last = drop_last},
      start);
}

std::vector<Samples> first_micro_batches(TrainingPlanner plan, int count) {
  std::vector<Samples> out;
  for (int i = 0; i < count; ++i) out.push_back(plan.next().samples);
  return out;
}

// The samples of the first global batches in the order of dealing: slice by slice, rank by rank.
Samples dealt(int64_t num_samples, BatchShape shape, bool shuffle, bool drop_last, int batches) {
  std::vector<TrainingPlanner> ranks;
  for (int rank = 0; rank < shape.num_ranks; ++rank)
    ranks.push_back(planner(num_samples, shape, rank, shuffle, drop_last));
  Samples out;
  for (int64_t slice = 0; slice < batches * shape.accumulation; ++slice) {
    for (auto& rank : ranks) {
      const auto plan = rank.next();
      out.insert(out.end(), plan.samples.begin(), plan.samples.end());
    }
  }
  return out;
}

}  // namespace

TEST_CASE("ten samples on two ranks with accumulation two, worked by hand", "[runtime][data][sample_order]") {
  const BatchShape shape{.micro_batch = 1, .accumulation = 2, .num_ranks = 2};  // batches of 4
  SECTION("the remainder of two is dropped") {
    CHECK(first_micro_batches(planner(10, shape, 0, false, true), 6) ==
          std::vector<Samples>{{0}, {2}, {4}, {6}, {0}, {2}});
    CHECK(first_micro_batches(planner(10, shape, 1, false, true), 6) ==
          std::vector<Samples>{{1}, {3}, {5}, {7}, {1}, {3}});
  }
  SECTION("the remainder is joined with the next epoch's first samples") {
    CHECK(first_micro_batches(planner(10, shape, 0, false, false), 8) ==
          std::vector<Samples>{{0}, {2}, {4}, {6}, {8}, {0}, {2}, {4}});
    CHECK(first_micro_batches(planner(10, shape, 1, false, false), 8) ==
          std::vector<Samples>{{1}, {3}, {5}, {7}, {9}, {1}, {3}, {5}});
  }
}

TEST_CASE("a rank takes its contiguous share of each slice", "[runtime][data][sample_order]") {
  const BatchShape shape{.micro_batch = 2, .accumulation = 2, .num_ranks = 3};  // batches of 12, slices of 6
  CHECK(first_micro_batches(planner(24, shape, 0, false, true), 4) ==
        std::vector<Samples>{{0, 1}, {6, 7}, {12, 13}, {18, 19}});
  CHECK(first_micro_batches(planner(24, shape, 2, false, true), 4) ==
        std::vector<Samples>{{4, 5}, {10, 11}, {16, 17}, {22, 23}});
}

TEST_CASE("a micro batch may reach over several ends of a tiny data set", "[runtime][data][sample_order]") {
  const BatchShape shape{.micro_batch = 7, .accumulation = 1, .num_ranks = 1};
  auto plan = planner(3, shape, 0, false, false);
  CHECK(plan.next().samples == Samples{0, 1, 2, 0, 1, 2, 0});
  const auto second = plan.next();
  CHECK(second.samples == Samples{1, 2, 0, 1, 2, 0, 1});
  CHECK(second.first == DataPosition{2, 1});
  CHECK(second.after == DataPosition{4, 2});
}

TEST_CASE("every split of the same batch deals the same samples in the same order", "[runtime][data][sample_order]") {
  const bool shuffle = GENERATE(false, true), drop_last = GENERATE(false, true);
  const Samples expected = dealt(31, {12, 1, 1}, shuffle, drop_last, 6);
  CHECK(dealt(31, {1, 12, 1}, shuffle, drop_last, 6) == expected);
  CHECK(dealt(31, {1, 1, 12}, shuffle, drop_last, 6) == expected);
  CHECK(dealt(31, {2, 3, 2}, shuffle, drop_last, 6) == expected);
  CHECK(dealt(31, {4, 1, 3}, shuffle, drop_last, 6) == expected);
  CHECK(dealt(31, {1, 3, 4}, shuffle, drop_last, 6) == expected);
}

TEST_CASE("a position means the same at another batch size", "[runtime][data][sample_order]") {
  auto before = planner(10, {4, 1, 1}, 0, false, true);
  before.next();
  const DataPosition saved = before.next().after;
  CHECK(saved == DataPosition{0, 8});
  CHECK(first_micro_batches(planner(10, {2, 1, 1}, 0, false, true, saved), 2) == std::vector<Samples>{{8, 9}, {0, 1}});
  CHECK(first_micro_batches(planner(10, {3, 1, 1}, 0, false, true, saved), 1) == std::vector<Samples>{{0, 1, 2}});
  CHECK(first_micro_batches(planner(10, {3, 1, 1}, 0, false, false, saved), 1) == std::vector<Samples>{{8, 9, 0}});
}

TEST_CASE("a run that is split in two deals what one run deals", "[runtime][data][sample_order]") {
  const BatchShape shape{.micro_batch = 2, .accumulation = 2, .num_ranks = 2};
  const bool drop_last = GENERATE(false, true);
  auto whole = planner(21, shape, 1, true, drop_last);
  for (int step = 0; step < 9; ++step) {
    whole.next();
    auto rest = planner(21, shape, 1, true, drop_last, whole.next().after);
    auto expected = whole;  // a copy goes its own way
    for (int i = 0; i < 6; ++i) CHECK(rest.next().samples == expected.next().samples);
  }
}

TEST_CASE("each epoch has an order of its own that holds every sample once", "[runtime][data][sample_order]") {
  const Samples order = dealt(100, {10, 1, 1}, true, true, 20);
  const Samples first(order.begin(), order.begin() + 100), second(order.begin() + 100, order.end());
  CHECK(std::set<int64_t>(first.begin(), first.end()).size() == 100);
  CHECK(std::set<int64_t>(second.begin(), second.end()).size() == 100);
  CHECK(first != second);
}

// From the Python in docs/data.md.
TEST_CASE("the shuffled order is the documented one", "[runtime][data][permutation]") {
  auto order = [](int64_t size, uint64_t seed, int64_t epoch, int64_t count) {
    Permutation permutation(size, seed, epoch);
    Samples out;
    for (int64_t i = 0; i < count; ++i) out.push_back(permutation(i));
    return out;
  };
  CHECK(order(10, 0, 0, 10) == Samples{7, 9, 3, 1, 5, 6, 2, 4, 8, 0});
  CHECK(order(10, 0, 1, 10) == Samples{4, 5, 9, 3, 0, 7, 2, 8, 1, 6});
  CHECK(order(10, 7, 0, 10) == Samples{9, 3, 2, 7, 0, 1, 6, 8, 5, 4});
  CHECK(order(1000003, 42, 3, 5) == Samples{466132, 736157, 482024, 600881, 168585});
  CHECK(order(1, 5, 5, 1) == Samples{0});
}

TEST_CASE("a permutation is a bijection at every small size and spreads evenly", "[runtime][data][permutation]") {
  for (int64_t size = 1; size <= 70; ++size) {
    Permutation permutation(size, 3, size);
    std::set<int64_t> seen;
    for (int64_t i = 0; i < size; ++i) seen.insert(permutation(i));
    REQUIRE(seen.size() == static_cast<size_t>(size));
    REQUIRE(*seen.begin() == 0);
    REQUIRE(*seen.rbegin() == size - 1);
  }
  // Where the first of six samples goes over 6000 seeds: 1000 each; 5 standard deviations are 144.
  std::vector<int> counts(6);
  for (uint64_t seed = 0; seed < 6000; ++seed) ++counts[static_cast<size_t>(Permutation(6, seed, 0)(0))];
  for (int count : counts) CHECK(std::abs(count - 1000) < 144);
}

TEST_CASE("steps of an epoch are counted", "[runtime][data][sample_order]") {
  CHECK(steps_in_epochs(10, 4, true, 1) == 2);
  CHECK(steps_in_epochs(10, 4, true, 3) == 6);
  CHECK(steps_in_epochs(10, 4, false, 1) == 3);
  CHECK(steps_in_epochs(10, 4, false, 2) == 5);
  CHECK(steps_in_epochs(12, 4, false, 1) == 3);
  constexpr int64_t kMax = std::numeric_limits<int64_t>::max();
  for (const bool drop_last : {true, false}) CHECK(steps_in_epochs(100, 4, drop_last, kMax) == kMax);
  CHECK(steps_in_epochs(1, 4, false, kMax) == kMax / 4 + 1);
}

TEST_CASE("an evaluation deals every sample once and the same number of batches to each rank",
          "[runtime][data][sample_order]") {
  for (int num_ranks = 1; num_ranks <= 4; ++num_ranks) {
    for (int64_t num_samples = 1; num_samples <= 20; ++num_samples) {
      std::multiset<int64_t> seen;
      for (int rank = 0; rank < num_ranks; ++rank) {
        EvaluationPlanner plan(num_samples, 2, num_ranks, rank);
        int64_t batches = 0;
        while (const auto batch = plan.next()) {
          ++batches;
          REQUIRE_FALSE(batch->samples.empty());
          REQUIRE(batch->num_samples <= 2);
          seen.insert(batch->samples.begin(), batch->samples.begin() + batch->num_samples);
        }
        REQUIRE(batches == (num_samples + 2 * num_ranks - 1) / (2 * num_ranks));
      }
      REQUIRE(seen.size() == static_cast<size_t>(num_samples));
      REQUIRE(std::set<int64_t>(seen.begin(), seen.end()).size() == seen.size());
    }
  }
}

TEST_CASE("a short last slice is split fairly, with a padding batch for a rank that gets nothing",
          "[runtime][data][sample_order]") {
  // 6 + 4 samples on 3 ranks of micro batch 2: the last slice is 6, 7 | 8 | 9.
  EvaluationPlanner zero(10, 2, 3, 0), two(10, 2, 3, 2);
  CHECK(zero.next()->samples == Samples{0, 1});
  CHECK(zero.next()->samples == Samples{6, 7});
  CHECK_FALSE(zero.next());
  two.next();
  CHECK(two.next()->samples == Samples{9});
  EvaluationPlanner empty(7, 2, 3, 2);
  empty.next();
  const auto padding = empty.next();
  CHECK(padding->samples == Samples{6});
  CHECK(padding->num_samples == 0);
}
