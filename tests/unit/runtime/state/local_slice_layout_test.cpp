#include "runtime/state/local_slice_layout.hpp"

#include <ATen/ATen.h>

#include <catch2/catch.hpp>

using namespace dslaunch::runtime;

namespace {

// Parameters of three dims whose elements are their positions, with every kind of slice.
struct Sliced {
  ParameterInfo info;
  at::Tensor whole, local;
};

Sliced sliced(const std::vector<int64_t>& shape, std::optional<LocalSlice> slice) {
  Sliced out;
  out.whole = at::arange(at::IntArrayRef(shape)[0] * shape[1] * shape[2], at::kFloat).view(shape);
  out.local = out.whole;
  if (slice) {
    std::vector<at::Tensor> parts;
    for (const auto& range : slice->ranges) parts.push_back(out.whole.slice(slice->dim, range.begin, range.end));
    out.local = at::cat(parts, slice->dim);
  }
  out.info = {.name = "p", .shape = out.local.sizes().vec(), .numel = out.local.numel(), .slice = std::move(slice)};
  return out;
}

std::vector<Sliced> examples() {
  std::vector<Sliced> out{sliced({2, 3, 2}, std::nullopt)};
  for (int64_t dim = 0; dim < 3; ++dim) {
    std::vector<int64_t> shape{2, 3, 2};
    shape[static_cast<size_t>(dim)] = 7;
    out.push_back(sliced(shape, LocalSlice{dim, 7, {{2, 5}}}));
    out.push_back(sliced(shape, LocalSlice{dim, 7, {{1, 2}, {4, 7}}}));
    out.push_back(sliced(shape, LocalSlice{dim, 7, {{5, 7}, {0, 1}, {2, 3}}}));
    out.push_back(sliced(shape, LocalSlice{dim, 7, {{0, 7}}}));
  }
  return out;
}

template <class Check>  // (example, begin, end), of every range of local elements
void for_all_ranges(const Check& check) {
  for (const auto& example : examples()) {
    for (int64_t begin = 0; begin <= example.info.numel; ++begin) {
      for (int64_t end = begin; end <= example.info.numel; ++end) check(example, begin, end);
    }
  }
}

}  // namespace

TEST_CASE("any range of local elements is read from the whole parameter", "[runtime][local_slice]") {
  for_all_ranges([](const Sliced& example, int64_t begin, int64_t end) {
    const at::Tensor flat = example.whole.reshape({-1}), out = at::full({end - begin}, -1.0F);
    LocalSliceLayout(example.info).read(begin, out, [&](int64_t first, const at::Tensor& values) {
      values.copy_(flat.narrow(0, first, values.numel()));
    });
    REQUIRE(out.equal(example.local.reshape({-1}).narrow(0, begin, end - begin)));
  });
  for (const auto& example : examples()) {
    for (int64_t i = 0; i < example.info.numel; ++i) {
      REQUIRE(LocalSliceLayout(example.info).to_whole(i) == example.local.reshape({-1})[i].item<int64_t>());
    }
    CHECK(local_part(example.whole, example.info.slice).equal(example.local));
    CHECK(example.info.whole_shape() == example.whole.sizes().vec());
    CHECK(example.info.whole_numel() == example.whole.numel());
  }
}

TEST_CASE("local elements are parts of the ranges, and parts are put back", "[runtime][local_slice]") {
  for_all_ranges([](const Sliced& example, int64_t begin, int64_t end) {
    const at::Tensor run = example.local.reshape({-1}).narrow(0, begin, end - begin), out = at::full_like(run, -1);
    int64_t count = 0;
    for (const auto& part : LocalSliceLayout(example.info).parts(begin, end)) {
      const auto& slice = part.slice();
      const at::Tensor range = (slice ? example.whole.narrow(slice->dim, slice->start, slice->length) : example.whole)
                                   .reshape({-1})
                                   .narrow(0, part.begin(), part.count());
      const auto read = [&](int64_t first, int64_t numel) { return run.narrow(0, first, numel); };
      for (int64_t first = 0; first < part.count(); ++first) {
        REQUIRE(part.gather(first, part.count() - first, read).equal(range.narrow(0, first, part.count() - first)));
      }
      part.fill(out, [&](const at::Tensor& values) { values.copy_(range); });
      count += part.count();
    }
    REQUIRE(count == end - begin);
    REQUIRE(out.equal(run));
  });
}
