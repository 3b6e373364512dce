#include "runtime/state/state_span.hpp"

#include <ATen/ATen.h>

#include <catch2/catch.hpp>
#include <vector>

#include "runtime/state/state_arrays.hpp"

using namespace dslaunch::runtime;

namespace {

// Parameters 0 (10 elements), 1 (5), 2 (7), 3 (0), padded to 64.
const FlatGroup kLayout{0, at::kFloat, false, {{0, 0, 10}, {1, 10, 5}, {3, 15, 0}, {2, 15, 7}}, 22, 64};
constexpr int kIndex = 4;

// Begin, end and optimizer group of each span.
using Spans = std::vector<std::vector<int64_t>>;

Spans spans_of(Range range, const std::vector<int>& group_of) {
  Spans out;
  int64_t next = range.begin;
  for (const auto& span : plan_spans(kLayout, kIndex, range, group_of)) {
    out.push_back({span.range.begin, span.range.end, span.optimizer_group});
    CHECK(span.flat_group == kIndex);
    CHECK(span.range.begin == next);
    next = span.range.end;
  }
  CHECK(next == range.end);
  return out;
}

}  // namespace

TEST_CASE("a range of one optimizer group is one span", "[runtime][state_span]") {
  CHECK(spans_of({0, 64}, {2, 2, 2, 2}) == Spans{{0, 64, 2}});
  CHECK(spans_of({0, 64}, {}) == Spans{{0, 64, 0}});
}

TEST_CASE("a range is cut where the optimizer group changes, padding stays with the last span",
          "[runtime][state_span]") {
  CHECK(spans_of({0, 64}, {0, 0, 1, 0}) == Spans{{0, 15, 0}, {15, 64, 1}});
  CHECK(spans_of({0, 64}, {0, 1, 2, 5}) == Spans{{0, 10, 0}, {10, 15, 1}, {15, 64, 2}});
  CHECK(spans_of({4, 12}, {0, 1, 2, 5}) == Spans{{4, 10, 0}, {10, 12, 1}});
  CHECK(spans_of({12, 32}, {0, 1, 2, 5}) == Spans{{12, 15, 1}, {15, 32, 2}});
}

TEST_CASE("a range of padding alone belongs to the group before it", "[runtime][state_span]") {
  CHECK(spans_of({32, 64}, {0, 1, 2, 5}) == Spans{{32, 64, 2}});
}

TEST_CASE("an fp32 parameter is its own master", "[runtime][state_arrays]") {
  const at::Tensor parameter = at::ones({8});
  const StateArrays arrays = arrays_of_parameter(parameter, at::kCPU);
  CHECK(arrays.master_is_parameter());
  CHECK(arrays.master.is_same(parameter));
  CHECK(arrays.parameter().is_same(parameter));
}

TEST_CASE("a low-precision parameter has a master beside it", "[runtime][state_arrays]") {
  const at::Tensor parameter = at::ones({8}, at::kBFloat16);
  const StateArrays arrays = arrays_of_parameter(parameter, at::kCPU);
  CHECK_FALSE(arrays.master_is_parameter());
  CHECK(arrays.parameter().is_same(parameter));
  CHECK(at::equal(arrays.master, at::zeros({8})));
}

TEST_CASE("narrowed arrays are views of those that are defined", "[runtime][state_arrays]") {
  StateArrays arrays = arrays_of_parameter(at::arange(8, at::kFloat), at::kCPU);
  arrays.moments = {at::zeros({8}), at::ones({8})};
  const StateArrays part = narrow(arrays, 3, 2);
  CHECK_FALSE(part.gradient.defined());
  CHECK(part.master_is_parameter());
  CHECK(at::equal(part.master, at::tensor({3.0F, 4.0F})));
  part.moments[1].fill_(5);
  CHECK(at::equal(arrays.moments[1], at::tensor({1.0F, 1.0F, 1.0F, 5.0F, 5.0F, 1.0F, 1.0F, 1.0F})));
}
