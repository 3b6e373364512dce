#include "runtime/state/slice.hpp"

#include <algorithm>
#include <catch2/catch.hpp>
#include <functional>
#include <string>

using namespace dslaunch::runtime;

namespace {

using Shape = std::vector<int64_t>;

const std::vector<Shape> kShapes = {{},     {5},       {1, 4},    {4, 1},       {3, 4},       {0, 3},
                                    {3, 0}, {2, 3, 4}, {3, 1, 2}, {2, 2, 3, 2}, {1, 3, 2, 2}, {2, 0, 2}};

std::vector<std::optional<Slice>> slices_of(const Shape& shape) {
  std::vector<std::optional<Slice>> out{std::nullopt};
  for (size_t dim = 0; dim < shape.size(); ++dim) {
    for (int64_t start = 0; start <= shape[dim]; ++start) {
      for (int64_t length = 0; start + length <= shape[dim]; ++length) {
        out.push_back(Slice{static_cast<int64_t>(dim), start, length});
      }
    }
  }
  return out;
}

// The positions of the slice's elements in the whole tensor, found by looking at the index of every element.
std::vector<int64_t> positions_of(const Shape& shape, const std::optional<Slice>& slice) {
  int64_t numel = 1;
  for (const int64_t size : shape) numel *= size;
  std::vector<int64_t> out;
  for (int64_t position = 0; position < numel; ++position) {
    int64_t rest = position, index = 0;
    for (size_t dim = shape.size(); slice && dim > static_cast<size_t>(slice->dim); --dim) {
      index = rest % shape[dim - 1];
      rest /= shape[dim - 1];
    }
    if (!slice || (index >= slice->start && index < slice->start + slice->length)) out.push_back(position);
  }
  return out;
}

void for_all_slices(const std::function<void(const SliceLayout&, const std::vector<int64_t>&, int64_t)>& check) {
  for (const auto& shape : kShapes) {
    const auto num_positions = static_cast<int64_t>(positions_of(shape, std::nullopt).size());
    for (const auto& slice : slices_of(shape)) check({shape, slice}, positions_of(shape, slice), num_positions);
  }
}

}  // namespace

TEST_CASE("every element of every slice has its position in the whole tensor", "[runtime][slice]") {
  for_all_slices([](const SliceLayout& layout, const std::vector<int64_t>& positions, int64_t num_positions) {
    REQUIRE(layout.numel() == static_cast<int64_t>(positions.size()));
    for (int64_t i = 0; i < layout.numel(); ++i) {
      const int64_t last = i + layout.run_length(i) - 1;
      REQUIRE(layout.to_whole(i) == positions[static_cast<size_t>(i)]);
      REQUIRE(layout.to_whole(last) == layout.to_whole(i) + last - i);
    }
    for (int64_t whole = 0; whole <= num_positions; ++whole) {
      const auto before = std::lower_bound(positions.begin(), positions.end(), whole) - positions.begin();
      REQUIRE(layout.elements_before(whole) == before);
    }
  });
}

TEST_CASE("any range of a slice is at most three groups of equal runs", "[runtime][slice]") {
  for_all_slices([](const SliceLayout& layout, const std::vector<int64_t>& positions, int64_t) {
    for (int64_t begin = 0; begin <= layout.numel(); ++begin) {
      for (int64_t end = begin; end <= layout.numel(); ++end) {
        const auto groups = layout.runs(begin, end);
        REQUIRE(groups.size() <= 3);
        int64_t at = begin;
        for (const auto& group : groups) {
          REQUIRE(group.in_slice == at);
          for (int64_t k = 0; k < group.count * group.length; ++k, ++at) {
            const int64_t whole = group.in_whole + k / group.length * group.stride + k % group.length;
            REQUIRE(whole == positions[static_cast<size_t>(at)]);
          }
        }
        REQUIRE(at == end);
      }
    }
  });
}

TEST_CASE("a slice outside of its tensor does not fit", "[runtime][slice]") {
  const Shape shape{3, 4};
  CHECK(fits({1, 3, 1}, shape));
  CHECK(fits({0, 0, 3}, shape));
  for (const Slice bad : {Slice{2, 0, 1}, Slice{-1, 0, 1}, Slice{0, 3, 1}, Slice{1, -1, 2}, Slice{1, 0, -1},
                          Slice{0, INT64_MAX, 1}, Slice{0, 1, INT64_MAX}}) {
    CHECK_FALSE(fits(bad, shape));
    CHECK_THROWS(SliceLayout(shape, bad));
  }
}
