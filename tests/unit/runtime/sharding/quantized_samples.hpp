// What the tests of quantizing share.
#pragma once
#include <ATen/ATen.h>

#include <algorithm>

#include "runtime/sharding/quantized_codec.hpp"

namespace dslaunch::runtime {

inline at::Tensor noise(int64_t numel, int64_t seed) {
  auto generator = at::make_generator<at::CPUGeneratorImpl>(static_cast<uint64_t>(seed));
  return at::randn({numel}, generator, at::kFloat);
}

// Half a step of each element's block, from the definition; and a little for fp32's own rounding.
inline at::Tensor bound(const at::Tensor& values, WireFormat format) {
  at::Tensor out = at::empty_like(values, at::kFloat);
  for (int64_t begin = 0; begin < values.numel(); begin += format.block) {
    const int64_t count = std::min(format.block, values.numel() - begin);
    const float largest = values.narrow(0, begin, count).to(at::kFloat).abs().max().item<float>();
    out.narrow(0, begin, count).fill_(largest / static_cast<float>(format.largest_code()) / 2 * (1 + 1e-5F));
  }
  return out;
}

}  // namespace dslaunch::runtime
