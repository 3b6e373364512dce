#include "runtime/checkpoint/read_plan.hpp"

#include <algorithm>
#include <catch2/catch.hpp>
#include <random>
#include <vector>

using namespace dslaunch::runtime;

namespace {

using Shape = std::vector<int64_t>;

int64_t numel_of(const Shape& shape) {
  return SliceLayout(shape, std::nullopt).numel();
}

// The positions in the whole parameter of the range's elements; element i of a state has the value i.
std::vector<int64_t> values_of(const Shape& shape, const SliceRange& range) {
  const SliceLayout layout(shape, range.slice);
  std::vector<int64_t> out;
  for (int64_t i = range.begin; i < range.end; ++i) out.push_back(layout.to_whole(i));
  return out;
}

void apply(const PieceCopy& copy, const std::vector<int64_t>& from, std::vector<int64_t>& to) {
  for (int64_t run = 0; run < copy.count; ++run) {
    for (int64_t i = 0; i < copy.length; ++i) {
      to.at(static_cast<size_t>(copy.to + run * copy.to_stride + i)) =
          from.at(static_cast<size_t>(copy.from + run * copy.from_stride + i));
    }
  }
}

// Carries the plan out and compares with a search for every single element.
void check_plan(const Shape& shape, const std::vector<SliceRange>& pieces, const SliceRange& request) {
  const auto plan = plan_read(shape, pieces, request);
  const auto expected = values_of(shape, request);
  std::vector<int64_t> found(expected.size(), -1), available;
  for (const auto& copy : plan.copies) apply(copy, values_of(shape, pieces[copy.piece]), found);
  for (const auto& piece : pieces) {
    const auto values = values_of(shape, piece);
    available.insert(available.end(), values.begin(), values.end());
    const Range needed = needed_part(shape, piece, request);
    REQUIRE((piece.begin <= needed.begin && needed.begin <= needed.end && needed.end <= piece.end));
    for (int64_t i = piece.begin; i < piece.end; ++i) {
      const int64_t value = values[static_cast<size_t>(i - piece.begin)];
      const bool is_needed = std::count(expected.begin(), expected.end(), value) > 0;
      if (is_needed) REQUIRE((needed.begin <= i && i < needed.end));
    }
  }
  std::vector<bool> is_gap(expected.size());
  for (const auto& gap : plan.gaps) {
    REQUIRE((request.begin <= gap.begin && gap.begin < gap.end && gap.end <= request.end));
    for (int64_t i = gap.begin; i < gap.end; ++i) is_gap[static_cast<size_t>(i - request.begin)] = true;
  }
  for (size_t i = 0; i < expected.size(); ++i) {
    const bool is_there = std::count(available.begin(), available.end(), expected[i]) > 0;
    REQUIRE(is_gap[i] == !is_there);
    REQUIRE(found[i] == (is_there ? expected[i] : -1));
  }
}

std::vector<SliceRange> all_ranges(const Shape& shape) {
  std::vector<std::optional<Slice>> slices{std::nullopt};
  for (size_t dim = 0; dim < shape.size(); ++dim) {
    for (int64_t start = 0; start < shape[dim]; ++start) {
      for (int64_t length = 1; start + length <= shape[dim]; ++length) {
        slices.push_back(Slice{static_cast<int64_t>(dim), start, length});
      }
    }
  }
  std::vector<SliceRange> out;
  for (const auto& slice : slices) {
    const int64_t numel = SliceLayout(shape, slice).numel();
    for (int64_t begin = 0; begin < numel; ++begin) {
      for (int64_t end = begin + 1; end <= numel; ++end) out.push_back({slice, begin, end});
    }
  }
  return out;
}

}  // namespace

TEST_CASE("any range of any slice is read from any range of any slice", "[runtime][checkpoint][read_plan]") {
  const Shape shape = GENERATE(Shape{2, 3}, Shape{3, 2}, Shape{2, 2, 2});
  for (const auto& piece : all_ranges(shape)) {
    for (const auto& request : all_ranges(shape)) check_plan(shape, {piece}, request);
  }
}

TEST_CASE("pieces of several slices together fill a request, and what they lack is named",
          "[runtime][checkpoint][read_plan]") {
  std::mt19937 random(27);
  const auto any = [&](size_t count) { return std::uniform_int_distribution<size_t>(0, count - 1)(random); };
  for (const Shape& shape : {Shape{7}, Shape{3, 4}, Shape{2, 3, 4}, Shape{3, 1, 2}}) {
    const auto ranges = all_ranges(shape);
    for (int round = 0; round < 2000; ++round) {
      std::vector<SliceRange> pieces;
      for (size_t i = any(7); i > 0; --i) pieces.push_back(ranges[any(ranges.size())]);
      check_plan(shape, pieces, ranges[any(ranges.size())]);
    }
  }
}

TEST_CASE("a parameter that is cut into slices is read with a copy or three of each piece",
          "[runtime][checkpoint][read_plan]") {
  const Shape shape{6, 8};
  std::vector<SliceRange> quarters, columns;
  for (int64_t i = 0; i < 4; ++i) {
    quarters.push_back({std::nullopt, 12 * i, 12 * (i + 1)});
    columns.push_back({Slice{1, 2 * i, 2}, 0, 12});
  }
  const SliceRange whole{std::nullopt, 0, numel_of(shape)};
  CHECK(plan_read(shape, quarters, whole).copies.size() == 4);
  CHECK(plan_read(shape, columns, whole).copies.size() == 4);
  CHECK(plan_read(shape, columns, columns[1]).copies.size() == 1);
  CHECK(plan_read(shape, quarters, columns[1]).copies.size() <= 12);
}

TEST_CASE("a request without elements needs no piece", "[runtime][checkpoint][read_plan]") {
  check_plan({0, 3}, {}, {std::nullopt, 0, 0});
  check_plan({2, 3}, {{std::nullopt, 0, 6}}, {Slice{1, 1, 0}, 0, 0});
}
