// Rounds of the CPU optimizer over host memory, one for each line of standard input, for bench/cpu_adam:
//
//   adam_rounds COUNT THREADS [4k]
//
// The lines are "adam TYPE", "stream TYPE" and "copy TYPE", the answers two numbers of milliseconds: on the clock, and
// processor time of all threads together. TYPE is that of the gradient:
// bf16, fp16 or fp32; parameters in bf16 are written in the same pass. "stream" reads and writes the same bytes and
// computes nothing, with non-temporal stores; "copy" does so with ordinary stores to the lines that it has read. Arrays
// lie in 2 MiB pages, with "4k" in ordinary ones. Statically linked, so it runs on machines where nothing is built.
#include <immintrin.h>
#include <sys/mman.h>

#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <functional>
#include <iostream>
#include <stdexcept>
#include <string>

#include "runtime/optim/host_update.hpp"
#include "runtime/state/thread_team.hpp"

#define DSL_AVX2 __attribute__((target("avx2")))

namespace {

using namespace dslaunch::runtime;
using optim::host::ElementType;
using optim::host::Range;

constexpr int64_t kGrain = 32768;  // elements, as in the optimizers

struct Program {
  int64_t count;
  ThreadTeam team;
  bool huge_pages;
  Range range;  // without a gradient
  float* gradient_fp32 = nullptr;
  uint16_t* gradient_half = nullptr;
};

// At the start of a 2 MiB page.
template <class T>
T* allocate(const Program& program) {
  constexpr size_t kPage = size_t{2} << 20;
  const size_t bytes = static_cast<size_t>(program.count) * sizeof(T) + kPage;
  void* mapped = ::mmap(nullptr, bytes + kPage, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (mapped == MAP_FAILED) throw std::runtime_error("cannot map " + std::to_string(bytes) + " bytes");
  const auto begin = (reinterpret_cast<uintptr_t>(mapped) + kPage - 1) / kPage * kPage;
  ::madvise(reinterpret_cast<void*>(begin), bytes, program.huge_pages ? MADV_HUGEPAGE : MADV_NOHUGEPAGE);
  return reinterpret_cast<T*>(begin);
}

void fill(Program& program) {
  program.range = {.master = allocate<float>(program),
                   .moments = {allocate<float>(program), allocate<float>(program)},
                   .low_precision = allocate<uint16_t>(program),
                   .count = program.count};
  program.gradient_fp32 = allocate<float>(program);
  program.gradient_half = allocate<uint16_t>(program);
  // By the threads that will update it: memory comes from the NUMA node of the thread that touches it first.
  program.team.run(program.count, kGrain, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      program.range.master[i] = static_cast<float>(i % 1000) * 1e-3F - 0.5F;
      program.range.moments[0][i] = 0;
      program.range.moments[1][i] = 1e-4F;
      program.range.low_precision[i] = 0;
      program.gradient_fp32[i] = static_cast<float>(i % 17) * 0.01F;
      program.gradient_half[i] = static_cast<uint16_t>(0x3C00 + i % 200);  // 1 to 1.2 in fp16, about 0.01 in bf16
    }
  });
}

Range with_gradient(const Program& program, const std::string& type) {
  Range range = program.range;
  if (type == "fp32") {
    range.gradient = program.gradient_fp32;
  } else if (type == "bf16" || type == "fp16") {
    range.gradient = program.gradient_half;
    range.gradient_type = type == "bf16" ? ElementType::kBFloat16 : ElementType::kFloat16;
  } else {
    throw std::runtime_error("no type: " + type);
  }
  return range;
}

// A cache line, which is read before any of it is written. Assembly, since the compiler leaves out stores of what is
// there already.
template <bool kNonTemporal>
DSL_AVX2 inline void rewrite(float* line) {
  auto* words = reinterpret_cast<__m256i*>(line);
  const __m256i low = _mm256_load_si256(words), high = _mm256_load_si256(words + 1);
  if constexpr (kNonTemporal) {
    asm volatile("vmovntdq %2, %0\n\tvmovntdq %3, %1" : "=m"(words[0]), "=m"(words[1]) : "x"(low), "x"(high));
  } else {
    asm volatile("vmovdqa %2, %0\n\tvmovdqa %3, %1" : "=m"(words[0]), "=m"(words[1]) : "x"(low), "x"(high));
  }
}

// The bytes of an update, in whole lines of the low-precision parameters: 32 elements.
template <bool kNonTemporal>
DSL_AVX2 void move_bytes(const Range& range) {
  const bool is_half = range.gradient_type != ElementType::kFloat32;
  const auto* gradient = static_cast<const __m256i*>(range.gradient);
  auto* out = reinterpret_cast<__m256i*>(range.low_precision);
  for (int64_t i = 0; i + 32 <= range.count; i += 32) {
    // The gradient first: reads between non-temporal stores wait for them.
    __m256i read[2];
    for (int64_t part = 0; part < 2; ++part) {
      read[part] = is_half ? _mm256_load_si256(gradient + i / 16 + part)
                           : _mm256_xor_si256(_mm256_load_si256(gradient + i / 8 + 2 * part),
                                              _mm256_load_si256(gradient + i / 8 + 2 * part + 1));
    }
    for (float* array : {range.master, range.moments[0], range.moments[1]}) {
      rewrite<kNonTemporal>(array + i);
      rewrite<kNonTemporal>(array + i + 16);
    }
    for (int64_t part = 0; part < 2; ++part) _mm256_stream_si256(out + i / 16 + part, read[part]);
  }
  _mm_sfence();
}

std::function<void(const Range&)> work_of(const std::string& kind) {
  if (kind == "stream") return move_bytes<true>;
  if (kind == "copy") return move_bytes<false>;
  if (kind != "adam") throw std::runtime_error("no such round: " + kind);
  static const optim::AdamCoefficients kAdamW{.one_minus_beta1 = 0.1F,
                                              .beta2 = 0.999F,
                                              .one_minus_beta2 = 0.001F,
                                              .eps = 1e-8F,
                                              .step_size = 1e-3F,
                                              .inverse_root_correction = 1.7F,
                                              .decoupled_decay = 1e-5F};
  return [set = optim::host::best_instruction_set()](const Range& range) {
    optim::host::update_adam(range, kAdamW, 0.37F, set);
  };
}

double milliseconds(clockid_t clock) {
  timespec now{};
  ::clock_gettime(clock, &now);
  return static_cast<double>(now.tv_sec) * 1e3 + static_cast<double>(now.tv_nsec) * 1e-6;
}

void answer(Program& program, const std::string& kind, const std::string& type) {
  const auto work = work_of(kind);
  const Range all = with_gradient(program, type);
  const double began = milliseconds(CLOCK_MONOTONIC), cpu_began = milliseconds(CLOCK_PROCESS_CPUTIME_ID);
  program.team.run(program.count / kGrain, 1,
                   [&](int64_t begin, int64_t end) { work(optim::host::part(all, begin * kGrain, end * kGrain)); });
  const double ended = milliseconds(CLOCK_MONOTONIC), cpu_ended = milliseconds(CLOCK_PROCESS_CPUTIME_ID);
  std::cout << ended - began << " " << cpu_ended - cpu_began << std::endl;
}

}  // namespace

int main(int argc, char** argv) try {
  if (argc < 3) throw std::runtime_error("adam_rounds COUNT THREADS [4k]");
  Program program{.count = std::atoll(argv[1]) / kGrain * kGrain,
                  .team = ThreadTeam(std::atoi(argv[2])),
                  .huge_pages = argc < 4 || std::string(argv[3]) != "4k"};
  fill(program);
  std::cout << "ready " << static_cast<int>(optim::host::best_instruction_set()) << std::endl;
  for (std::string kind, type; std::cin >> kind >> type;) answer(program, kind, type);
} catch (const std::exception& error) {
  std::fprintf(stderr, "adam_rounds: %s\n", error.what());
  return 1;
}
