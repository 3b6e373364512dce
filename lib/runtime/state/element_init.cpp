#include "runtime/state/element_init.hpp"

#include <ATen/ops/empty.h>

#include <cmath>
#include <numbers>
#include <utility>

#include "base/hash.hpp"
#include "runtime/state/parallel_ranges.hpp"
#include "runtime/state/parameter_table.hpp"

namespace dslaunch::runtime {
namespace {

// Elements 2p and 2p + 1: Box-Muller on two uniform numbers in (0, 1] and [0, 1).
std::pair<float, float> normal_pair(uint64_t key, int64_t p) {
  const uint64_t bits = mix64(key + static_cast<uint64_t>(p));
  const float u = (static_cast<float>(bits >> 40) + 1.0F) * 0x1p-24F;
  const float v = static_cast<float>((bits >> 8) & 0xffffff) * 0x1p-24F;
  const float radius = std::sqrt(-2.0F * std::log(u));
  const float angle = 2.0F * std::numbers::pi_v<float> * v;
  return {radius * std::cos(angle), radius * std::sin(angle)};
}

}  // namespace

void init_elements(const std::string& name, size_t num_dims, uint64_t seed, double std, int64_t begin,
                   at::Tensor& out) {
  if (num_dims < 2) {
    out.fill_(num_dims == 1 && is_weight(name) ? 1.0 : 0.0);
    return;
  }
  const uint64_t key = mix64(seed ^ mix64(fnv1a(name)));
  at::Tensor values = at::empty({out.numel()}, at::kFloat);
  float* data = values.data_ptr<float>();
  parallel_ranges(out.numel(), 1 << 14, [&](int64_t first, int64_t last) {
    for (int64_t i = first; i < last;) {
      const int64_t element = begin + i;
      const auto [even, odd] = normal_pair(key, element / 2);
      if (element % 2 == 0) data[i++] = static_cast<float>(std) * even;
      if (i < last && (begin + i) % 2 == 1) data[i++] = static_cast<float>(std) * odd;
    }
  });
  out.copy_(values);
}

}  // namespace dslaunch::runtime
