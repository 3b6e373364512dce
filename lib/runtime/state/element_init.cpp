#include "runtime/state/element_init.hpp"

#include <ATen/ops/empty.h>

#include <cmath>
#include <numbers>
#include <utility>

#include "runtime/state/parallel_ranges.hpp"

namespace dslaunch::runtime {
namespace {

// splitmix64's finaliser: a bijection whose outputs pass statistical tests, enough for initial weights.
uint64_t mix(uint64_t x) {
  x += 0x9e3779b97f4a7c15ULL;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ULL;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebULL;
  return x ^ (x >> 31);
}

uint64_t hash_name(const std::string& name) {  // FNV-1a
  uint64_t hash = 0xcbf29ce484222325ULL;
  for (unsigned char c : name) hash = (hash ^ c) * 0x100000001b3ULL;
  return hash;
}

// Elements 2p and 2p + 1: Box-Muller on two uniform numbers in (0, 1] and [0, 1).
std::pair<float, float> normal_pair(uint64_t key, int64_t p) {
  const uint64_t bits = mix(key + static_cast<uint64_t>(p));
  const float u = (static_cast<float>(bits >> 40) + 1.0F) * 0x1p-24F;
  const float v = static_cast<float>((bits >> 8) & 0xffffff) * 0x1p-24F;
  const float radius = std::sqrt(-2.0F * std::log(u));
  const float angle = 2.0F * std::numbers::pi_v<float> * v;
  return {radius * std::cos(angle), radius * std::sin(angle)};
}

bool is_norm_weight(const std::string& name) {
  return name == "weight" || (name.size() > 7 && name.compare(name.size() - 7, 7, ".weight") == 0);
}

}  // namespace

void init_elements(const std::string& name, size_t num_dims, uint64_t seed, double std, int64_t begin,
                   at::Tensor& out) {
  if (num_dims < 2) {
    out.fill_(num_dims == 1 && is_norm_weight(name) ? 1.0 : 0.0);
    return;
  }
  const uint64_t key = mix(seed ^ mix(hash_name(name)));
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
