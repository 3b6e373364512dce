#include "runtime/optim/update_rounds.hpp"

#include <emmintrin.h>
#include <sys/mman.h>

#include <algorithm>
#include <cerrno>

#include "base/error.hpp"
#include "base/format.hpp"

namespace dslaunch::runtime::optim::host {
namespace {

constexpr int64_t kGrain = 32768;  // elements, as in the optimizers
constexpr size_t kHugePage = size_t{2} << 20;

int num_moments(RoundOptimizer optimizer) {
  return optimizer == RoundOptimizer::kAdam ? 2 : 1;
}

// Assembly, since the compiler leaves out stores of what is there already.
template <bool kNonTemporal>
void store(__m128i* word, __m128i value) {
  if constexpr (kNonTemporal) {
    asm volatile("movntdq %1, %0" : "=m"(*word) : "x"(value));
  } else {
    asm volatile("movdqa %1, %0" : "=m"(*word) : "x"(value));
  }
}

// A cache line, which is read before any of it is written: a read of a line that is being written waits.
template <bool kNonTemporal>
void rewrite(float* line) {
  auto* words = reinterpret_cast<__m128i*>(line);
  __m128i read[4];
  for (int i = 0; i < 4; ++i) read[i] = _mm_load_si128(words + i);
  for (int i = 0; i < 4; ++i) store<kNonTemporal>(words + i, read[i]);
}

// The bytes of an update, in whole lines of the low-precision parameters: 32 elements.
template <bool kNonTemporal>
void move_bytes(const Range& range, int moments) {
  const bool is_half = range.gradient_type != ElementType::kFloat32;
  const auto* gradient = static_cast<const __m128i*>(range.gradient);
  auto* out = reinterpret_cast<__m128i*>(range.low_precision);
  for (int64_t i = 0; i + 32 <= range.count; i += 32) {
    // The gradient first: reads between non-temporal stores wait for them.
    __m128i read[4];
    for (int64_t part = 0; part < 4; ++part) {
      read[part] = is_half ? _mm_load_si128(gradient + i / 8 + part)
                           : _mm_xor_si128(_mm_load_si128(gradient + i / 4 + 2 * part),
                                           _mm_load_si128(gradient + i / 4 + 2 * part + 1));
    }
    rewrite<kNonTemporal>(range.master + i);
    rewrite<kNonTemporal>(range.master + i + 16);
    for (int m = 0; m < moments; ++m) {
      rewrite<kNonTemporal>(range.moments[m] + i);
      rewrite<kNonTemporal>(range.moments[m] + i + 16);
    }
    for (int64_t part = 0; part < 4; ++part) _mm_stream_si128(out + i / 8 + part, read[part]);
  }
  _mm_sfence();
}

// Any that do not let values run away.
void update(const Range& range, RoundOptimizer optimizer) {
  static const InstructionSet kSet = best_instruction_set();
  constexpr float kFactor = 0.37F;
  switch (optimizer) {
    case RoundOptimizer::kAdam:
      return host::update<kernels::AdamRule>(range,
                                             {.one_minus_beta1 = 0.1F,
                                              .beta2 = 0.999F,
                                              .one_minus_beta2 = 0.001F,
                                              .eps = 1e-8F,
                                              .step_size = 1e-3F,
                                              .inverse_root_correction = 1.7F,
                                              .decoupled_decay = 1e-5F},
                                             kFactor, kSet);
    case RoundOptimizer::kAdagrad:
      return host::update<kernels::AdagradRule>(range, {.step_size = 1e-3F, .eps = 1e-8F}, kFactor, kSet);
    case RoundOptimizer::kLion:
      return host::update<kernels::LionRule>(range,
                                             {.beta1 = 0.9F,
                                              .one_minus_beta1 = 0.1F,
                                              .beta2 = 0.99F,
                                              .one_minus_beta2 = 0.01F,
                                              .lr = 1e-4F,
                                              .keep = 0.999F},
                                             kFactor, kSet);
    case RoundOptimizer::kSgdMomentum:
      return host::update<kernels::SgdMomentumRule>(
          range, {.lr = 1e-4F, .keep = 0.9F, .gradient_weight = 0, .momentum_weight = 1}, kFactor, kSet);
  }
}

}  // namespace

int64_t bytes_of_update(RoundOptimizer optimizer, ElementType gradient) {
  const int64_t read_and_written = (1 + num_moments(optimizer)) * static_cast<int64_t>(2 * sizeof(float));
  return read_and_written + (gradient == ElementType::kFloat32 ? 4 : 2) + static_cast<int64_t>(sizeof(uint16_t));
}

UpdateRounds::UpdateRounds(int64_t count, ThreadTeam& team, bool huge_pages) {
  range_.count = std::max(kGrain, count / kGrain * kGrain);
  range_.master = allocate<float>(huge_pages);
  range_.moments[0] = allocate<float>(huge_pages);
  range_.moments[1] = allocate<float>(huge_pages);
  range_.low_precision = allocate<uint16_t>(huge_pages);
  gradient_fp32_ = allocate<float>(huge_pages);
  gradient_half_ = allocate<uint16_t>(huge_pages);
  team.run(range_.count, kGrain, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      range_.master[i] = static_cast<float>(i % 1000) * 1e-3F - 0.5F;
      range_.moments[0][i] = 0;
      range_.moments[1][i] = 1e-4F;
      range_.low_precision[i] = 0;
      gradient_fp32_[i] = static_cast<float>(i % 17) * 0.01F;
      gradient_half_[i] = static_cast<uint16_t>(0x3C00 + i % 200);  // 1 to 1.2 in fp16, about 0.01 in bf16
    }
  });
}

UpdateRounds::~UpdateRounds() {
  for (const auto& [address, bytes] : mapped_) ::munmap(address, bytes);
}

// At the start of a 2 MiB page.
template <class T>
T* UpdateRounds::allocate(bool huge_pages) {
  const size_t bytes = static_cast<size_t>(range_.count) * sizeof(T) + kHugePage;
  void* mapped = ::mmap(nullptr, bytes + kHugePage, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (mapped == MAP_FAILED) {
    throw SystemError("map", fmt::format("{} bytes of memory", bytes), errno, ExitCode::kUnavailable);
  }
  mapped_.push_back({mapped, bytes + kHugePage});
  const auto begin = (reinterpret_cast<uintptr_t>(mapped) + kHugePage - 1) / kHugePage * kHugePage;
  ::madvise(reinterpret_cast<void*>(begin), bytes, huge_pages ? MADV_HUGEPAGE : MADV_NOHUGEPAGE);
  return reinterpret_cast<T*>(begin);
}

Range UpdateRounds::with_gradient(ElementType type) const {
  Range range = range_;
  range.gradient_type = type;
  range.gradient = type == ElementType::kFloat32 ? static_cast<const void*>(gradient_fp32_) : gradient_half_;
  return range;
}

void UpdateRounds::run(ThreadTeam& team, RoundWork work, RoundOptimizer optimizer, ElementType gradient) {
  const Range all = with_gradient(gradient);
  team.run(range_.count / kGrain, 1, [&](int64_t begin, int64_t end) {
    const Range range = part(all, begin * kGrain, end * kGrain);
    switch (work) {
      case RoundWork::kUpdate:
        return update(range, optimizer);
      case RoundWork::kStream:
        return move_bytes<true>(range, num_moments(optimizer));
      case RoundWork::kCopy:
        return move_bytes<false>(range, num_moments(optimizer));
    }
  });
}

}  // namespace dslaunch::runtime::optim::host
