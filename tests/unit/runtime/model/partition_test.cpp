// The balanced division against all divisions.
#include "runtime/model/stages/partition.hpp"

#include <algorithm>
#include <catch2/catch.hpp>
#include <functional>
#include <random>
#include <tuple>

using dslaunch::runtime::model::stages::partition_layers;
using dslaunch::runtime::model::stages::PartitionProblem;

namespace {

using Cuts = std::vector<size_t>;

PartitionProblem problem_of(std::vector<double> costs) {
  const size_t count = costs.size();
  return {std::move(costs), std::vector<bool>(count, true), std::vector<int64_t>(count),
          std::vector<int64_t>(count, 1)};
}

// The largest part, the bytes, the sum of squares; empty: not a division.
std::optional<std::tuple<double, int64_t, double>> price(const PartitionProblem& problem, Cuts cuts) {
  double largest = 0, squares = 0;
  int64_t bytes = 0;
  for (size_t cut : cuts) {
    if (!problem.can_cut[cut]) return std::nullopt;
    bytes += problem.cut_bytes[cut];
  }
  cuts.push_back(problem.costs.size());
  size_t first = 0;
  for (size_t end : cuts) {
    double cost = 0;
    int64_t trainable = 0;
    for (; first < end; ++first) {
      cost += problem.costs[first];
      trainable += problem.num_trainable[first];
    }
    if (trainable == 0) return std::nullopt;
    largest = std::max(largest, cost);
    squares += cost * cost;
  }
  return std::tuple(largest, bytes, squares);
}

void for_all_divisions(size_t num_layers, size_t num_parts, const std::function<void(const Cuts&)>& call,
                       Cuts cuts = {}) {
  if (cuts.size() + 1 == num_parts) return call(cuts);
  for (size_t cut = cuts.empty() ? 1 : cuts.back() + 1; cut < num_layers; ++cut) {
    cuts.push_back(cut);
    for_all_divisions(num_layers, num_parts, call, cuts);
    cuts.pop_back();
  }
}

}  // namespace

TEST_CASE("equal layers are divided evenly, the earlier parts being the larger ones", "[runtime][model][partition]") {
  CHECK(partition_layers(problem_of({1, 1, 1, 1, 1, 1, 1, 1, 1, 1}), 4) == Cuts{3, 6, 8});
  CHECK(partition_layers(problem_of({1, 1, 1}), 3) == Cuts{1, 2});
  CHECK(partition_layers(problem_of({1, 1, 1}), 1) == Cuts{});
  CHECK(!partition_layers(problem_of({1, 1, 1}), 4));
}

TEST_CASE("layers without a cost go with their neighbours", "[runtime][model][partition]") {
  CHECK(partition_layers(problem_of({0, 0, 1, 1, 1, 0, 0}), 3) == Cuts{3, 4});
}

TEST_CASE("no division is better than the one that is found", "[runtime][model][partition]") {
  std::mt19937 random(4);
  const auto number = [&](int below) { return static_cast<int>(random() % static_cast<unsigned>(below)); };
  for (int round = 0; round < 300; ++round) {
    PartitionProblem problem;
    const auto num_layers = static_cast<size_t>(1 + number(9));
    for (size_t i = 0; i < num_layers; ++i) {
      problem.costs.push_back(number(5));
      problem.can_cut.push_back(number(4) > 0);
      problem.cut_bytes.push_back(number(3));
      problem.num_trainable.push_back(number(3));
    }
    const auto num_parts = static_cast<size_t>(1 + number(5));
    std::optional<std::tuple<double, int64_t, double>> best;
    for_all_divisions(num_layers, num_parts, [&](const Cuts& cuts) {
      const auto found = price(problem, cuts);
      if (found && (!best || *found < *best)) best = found;
    });
    const auto found = partition_layers(problem, num_parts);
    REQUIRE(found.has_value() == best.has_value());
    if (found) CHECK(price(problem, *found) == best);
  }
}
