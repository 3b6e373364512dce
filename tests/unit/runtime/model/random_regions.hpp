// Random regions with inputs that keep all their functions smooth, for the tests of the reference and of kernels.
#pragma once
#include <ATen/ATen.h>

#include <random>
#include <vector>

#include "runtime/model/fusion/ir.hpp"

namespace dslaunch::test {

using runtime::model::fusion::Builder;
using runtime::model::fusion::Id;
using runtime::model::fusion::Input;
using runtime::model::fusion::Op;
using runtime::model::fusion::Region;

struct RandomRegion {
  Region region;
  std::vector<int64_t> leading;
};

// Values stay near 1: each step ends with a bounded function.
inline RandomRegion random_region(uint32_t seed, const std::vector<int64_t>& leading, int64_t width,
                                  at::ScalarType dtype, int max_reductions = 2) {
  std::mt19937 random(seed);
  const auto below = [&](size_t n) { return static_cast<size_t>(random() % n); };
  RandomRegion out{{}, leading};
  out.region.num_leading_dims = leading.size();
  Builder build(out.region);
  std::vector<Id> wide, narrow;
  std::vector<bool> all(leading.size(), true), none(leading.size(), false), some = all;
  some[0] = leading.size() == 1;
  wide.push_back(build.input({dtype, width, all}));
  wide.push_back(build.input({dtype, width, all}));
  wide.push_back(build.input({dtype, width, none}));
  wide.push_back(build.input({dtype, width, some}));
  narrow.push_back(build.input({dtype, 1, all}));
  narrow.push_back(build.input({dtype, 1, none}));
  int reductions = 0;
  const auto any = [&]() -> Id { return below(5) == 0 ? narrow[below(narrow.size())] : wide[below(wide.size())]; };
  const size_t steps = 4 + below(12);
  for (size_t i = 0; i < steps; ++i) {
    const Id a = wide[below(wide.size())], b = any();
    Id made = a;
    switch (below(13)) {
      case 0:
        made = build.binary(Op::kAdd, a, b);
        break;
      case 1:
        made = build.binary(Op::kMultiply, a, b);
        break;
      case 2:
        made = build.binary(Op::kSubtract, b, a);
        break;
      case 3:
        made = build.binary(Op::kDivide, a, build.binary(Op::kAdd, build.power(b, 2), build.constant(1.5)));
        break;
      case 4:
        made = build.unary(Op::kSigmoid, a);
        break;
      case 5:
        made = build.unary(Op::kErf, build.binary(Op::kMultiply, a, build.constant(0.7)));
        break;
      case 6:
        made = build.unary(Op::kRsqrt, build.binary(Op::kAdd, build.power(a, 2), build.constant(0.5)));
        break;
      case 7:
        made = build.select(build.binary(Op::kLess, a, b), a, build.unary(Op::kNegate, b));
        break;
      case 8:
        if (width % 2 == 0) {
          const int64_t half = width / 2;
          made = build.concat({build.unary(Op::kNegate, build.slice(a, half, half)), build.slice(a, 0, half)});
        }
        break;
      case 9:
        if (width > 8 && width % 8 == 0) {
          made = build.concat(
              {build.slice(a, 0, width / 8), build.slice(build.unary(Op::kSin, a), width / 8, width - width / 8)});
        }
        break;
      case 10:
        if (reductions++ < max_reductions) narrow.push_back(build.row_mean(build.binary(Op::kMultiply, a, b)));
        break;
      case 11:
        if (reductions++ < max_reductions) narrow.push_back(build.row(Op::kRowMax, a));
        break;
      default:
        made = build.binary(Op::kMaximum, a, b);
    }
    if (build.width(made) == width) wide.push_back(build.unary(Op::kTanh, made));
  }
  out.region.outputs.push_back({wide.back(), dtype});
  out.region.outputs.push_back({wide[wide.size() - 1 - below(3)], dtype});
  if (narrow.size() > 2) out.region.outputs.push_back({narrow.back(), dtype});
  return out;
}

// Tensors for a region's inputs, of the sizes [leading..., width] with 1 where they do not vary.
inline std::vector<at::Tensor> tensors_for(const Region& region, const std::vector<int64_t>& leading) {
  std::vector<at::Tensor> out;
  for (const auto& input : region.inputs) {
    std::vector<int64_t> sizes;
    for (size_t i = 0; i < leading.size(); ++i) sizes.push_back(input.varies[i] ? leading[i] : 1);
    sizes.push_back(input.width);
    out.push_back(at::randn(sizes, at::kDouble).to(input.dtype));
  }
  return out;
}

}  // namespace dslaunch::test
