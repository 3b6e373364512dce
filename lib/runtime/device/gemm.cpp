#include "runtime/device/gemm.hpp"

#include <ATen/ATen.h>
#include <ATen/record_function.h>
#include <torch/custom_class.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <functional>
#include <map>
#include <mutex>
#include <utility>
#include <vector>

#include "base/format.hpp"
#include "runtime/device/device_module.hpp"
#include "runtime/device/gemm_algorithm.hpp"
#include "runtime/device/gemm_functions.hpp"
#include "runtime/generated_kernels/kernel_files.hpp"

namespace dslaunch::runtime::device {
namespace {

constexpr int64_t kLeastMultiplications = int64_t{1} << 32;  // others may take less time than their launches
// Of PyTorch's time. What a GEMM gains by less in turns with others may be gone between the kernels of a step.
constexpr double kWorthwhile = 0.96;
constexpr double kTurnMicroseconds = 400;
constexpr double kWarmUpMicroseconds = 300'000;
constexpr double kGemmMicroseconds = 80'000;  // of measuring one
constexpr double kMaxSeconds = 3;             // of a process: shapes may change without end

// How cuBLASLt sees a matrix: one stride is 1, the other one its leading dimension.
struct Layout {
  bool is_column_major = false;
  int64_t leading = 0;
};

std::optional<Layout> layout_of(const at::Tensor& matrix) {
  const int64_t rows = matrix.size(0), columns = matrix.size(1), alignment = 16 / matrix.element_size();
  Layout out;
  if (matrix.stride(1) == 1 && matrix.stride(0) >= columns) {
    out = {false, matrix.stride(0)};
  } else if (matrix.stride(0) == 1 && matrix.stride(1) >= rows) {
    out = {true, matrix.stride(1)};
  } else {
    return std::nullopt;
  }
  const bool is_aligned = out.leading % alignment == 0 && rows % alignment == 0 && columns % alignment == 0 &&
                          reinterpret_cast<uintptr_t>(matrix.const_data_ptr()) % 16 == 0;
  return is_aligned ? std::optional(out) : std::nullopt;
}

// All that a choice depends on, for one card.
using Key = std::array<int64_t, 13>;

Key key_of(const GemmProblem& gemm, const at::Tensor& out) {
  const Layout left = *layout_of(gemm.left), right = *layout_of(gemm.right);
  return {out.device().index(),
          gemm.left.size(0),
          gemm.right.size(1),
          gemm.left.size(1),
          left.is_column_major,
          left.leading,
          right.is_column_major,
          right.leading,
          static_cast<int64_t>(gemm.left.scalar_type()),
          static_cast<int64_t>(gemm.right.scalar_type()),
          static_cast<int64_t>(out.scalar_type()),
          gemm.bias.has_value(),
          gemm.fp8 && gemm.fp8->fast};
}

std::string text_of(const Key& key, const std::string& device) {
  return fmt::format("// product of matrices on {}: {}", device, fmt::join(key.begin() + 1, key.end(), " "));
}

void scaled_gemm(const GemmProblem& gemm, at::Tensor& out) {
  at::_scaled_mm_out(out, gemm.left, gemm.right, gemm.fp8->left, gemm.fp8->right, gemm.bias, /*scale_result=*/{},
                     out.scalar_type(), gemm.fp8->fast);
}

void with_operators(const GemmProblem& gemm, at::Tensor& out, bool adds) {
  const auto& [left, right, bias, fp8] = gemm;
  const auto type = out.scalar_type();
  if (fp8) {
    if (!adds) return scaled_gemm(gemm, out);
    at::Tensor computed = at::empty_like(out);
    scaled_gemm(gemm, computed);
    out.add_(computed);
  } else if (bias) {
    at::addmm_out(out, *bias, left, right);
  } else if (type == left.scalar_type()) {
    if (!adds) {
      at::mm_out(out, left, right);
    } else if (out.is_cpu()) {
      out.add_(left.mm(right));
    } else {
      at::addmm_out(out, out, left, right);
    }
  } else if (out.is_cuda()) {
    adds ? at::addmm_out(out, out, left, right, type) : at::mm_out(out, left, right, type);
  } else {
    const at::Tensor computed = left.to(type).mm(right.to(type));
    adds ? out.add_(computed) : out.copy_(computed);
  }
}

// Traces and counts of FLOPs see PyTorch's operator for it.
bool observed(const GemmProblem& gemm, const std::function<bool()>& run) {
  if (gemm.fp8) {
    RECORD_FUNCTION("aten::_scaled_mm", (std::vector<c10::IValue>{gemm.left, gemm.right}));
    return run();
  }
  const bool is_linear = gemm.bias && layout_of(gemm.right)->is_column_major;
  if (is_linear) {
    RECORD_FUNCTION("aten::linear", (std::vector<c10::IValue>{gemm.left, gemm.right.t(), *gemm.bias}));
    return run();
  }
  if (gemm.bias) {
    RECORD_FUNCTION("aten::addmm", (std::vector<c10::IValue>{*gemm.bias, gemm.left, gemm.right}));
    return run();
  }
  RECORD_FUNCTION("aten::mm", (std::vector<c10::IValue>{gemm.left, gemm.right}));
  return run();
}

}  // namespace

class GemmCache::Choices {
 public:
  explicit Choices(std::string directory) : directory_(std::move(directory)), files_(directory_) {}

  bool run(const GemmProblem& gemm, const at::Tensor& out, bool adds) {
    const std::lock_guard lock(mutex_);
    const Key key = key_of(gemm, out);
    auto known = choices_.find(key);
    if (known == choices_.end()) {
      const auto choice = make(key, gemm, out, adds);
      if (!choice) return false;
      known = choices_.emplace(key, *choice).first;
    }
    if (known->second && !observed(gemm, [&] { return module().gemm.run(gemm, out, adds, *known->second); }))
      known->second.reset();
    return known->second.has_value();
  }

  Counts counts() {
    const std::lock_guard lock(mutex_);
    return counts_;
  }

 private:
  // Nothing: it cannot be measured now, and may be later.
  std::optional<Choice> make(const Key& key, const GemmProblem& gemm, const at::Tensor& out, bool adds) {
    const std::string text = text_of(key, description(out.device()));
    if (auto choice = read(text)) return choice;
    // There is nowhere to measure a sum: `out` has it, and memory for another one may not be there.
    const bool may_measure = !is_capturing(out.device()) && !adds && counts_.measuring_seconds <= kMaxSeconds;
    if (!may_measure && gemm.fp8) return first_of_heuristics(gemm, out);
    if (is_capturing(out.device())) return std::nullopt;
    if (!may_measure) return Choice();
    const auto began = std::chrono::steady_clock::now();
    const auto choice = measure(gemm, out);
    counts_.measuring_seconds += std::chrono::duration<double>(std::chrono::steady_clock::now() - began).count();
    counts_.measured += 1;
    if (!choice) return Choice();
    if (auto of_other_rank = read(text)) return of_other_rank;  // meanwhile
    // That nothing can be written is said where generated kernels are.
    if (!directory_.empty()) (void)files_.write(text, to_text(*choice));
    return choice;
  }

  const std::string& description(at::Device device) {
    std::string& known = descriptions_[device.index()];
    if (known.empty()) known = module().gemm.description(device);
    return known;
  }

  std::optional<Choice> read(const std::string& text) {
    const auto file = directory_.empty() ? std::nullopt : files_.read(text);
    auto choice = file ? choice_of(*file) : std::nullopt;
    counts_.read += choice ? 1 : 0;
    return choice;
  }

  // Nothing: the memory for workspaces does not suffice.
  std::optional<Choice> measure(const GemmProblem& gemm, const at::Tensor& out) {
    try {
      return fastest(gemm, out);
    } catch (const c10::OutOfMemoryError&) {
      return std::nullopt;
    }
  }

  // PyTorch's operator for fp8 takes the same algorithm, but cannot add.
  static Choice first_of_heuristics(const GemmProblem& gemm, const at::Tensor& out) {
    const auto algorithms = module().gemm.algorithms(gemm, out);
    return algorithms.empty() ? Choice() : Choice(algorithms.front());
  }

  Choice fastest(const GemmProblem& gemm, at::Tensor out) {
    const at::DisableRecordFunctionGuard unseen;
    auto algorithms = module().gemm.algorithms(gemm, out);
    std::erase_if(algorithms, [&](const Algorithm& each) { return !module().gemm.run(gemm, out, false, each); });
    const auto work = [&](size_t candidate) {
      if (candidate == 0) return with_operators(gemm, out, /*adds=*/false);
      module().gemm.run(gemm, out, /*adds=*/false, algorithms[candidate - 1]);
    };
    const double once = microseconds({0, 0}, 1, work, out.device()).back();
    if (counts_.measured == 0) {  // until the clock is that of a busy GPU
      microseconds({0}, static_cast<int>(kWarmUpMicroseconds / once) + 1, work, out.device());
    }
    const int repeats = std::clamp(static_cast<int>(kTurnMicroseconds / once), 1, 20);
    const auto num_candidates = algorithms.size() + 1;
    const double round = static_cast<double>(num_candidates) * repeats * once;
    const int rounds = std::clamp(static_cast<int>(kGemmMicroseconds / round), 3, 24);
    const size_t best = choose_fastest(num_candidates, rounds, kWorthwhile, [&](const std::vector<size_t>& turns) {
      return microseconds(turns, repeats, work, out.device());
    });
    if (best > 0) return algorithms[best - 1];
    return gemm.fp8 && !algorithms.empty() ? Choice(algorithms.front()) : Choice();
  }

  std::vector<double> microseconds(const std::vector<size_t>& turns, int repeats,
                                   const std::function<void(size_t candidate)>& work, at::Device device) const {
    std::vector<std::function<void()>> calls;
    for (const size_t candidate : turns) {
      calls.emplace_back([&work, candidate, repeats] {
        for (int i = 0; i < repeats; ++i) work(candidate);
      });
    }
    return module().gemm.microseconds(calls, device);
  }

  const std::string directory_;
  const generated_kernels::KernelFiles files_;
  std::mutex mutex_;  // guards all others
  std::map<Key, Choice> choices_;
  std::map<c10::DeviceIndex, std::string> descriptions_;
  Counts counts_;
};

// Graphs hold caches as attributes of nodes, which LibTorch compares and prints.
const torch::class_<GemmCache> kGemmCacheClass("dslaunch", "GemmCache");

GemmCache::GemmCache(std::string directory) : choices_(std::make_unique<Choices>(std::move(directory))) {}

GemmCache::~GemmCache() = default;

bool GemmCache::run(const GemmProblem& problem, const at::Tensor& out, bool adds) {
  return choices_->run(problem, out, adds);
}

GemmCache::Counts GemmCache::counts() const {
  return choices_->counts();
}

bool is_tunable(const GemmProblem& problem) {
  const auto& [left, right, bias, fp8] = problem;
  if (!left.is_cuda()) return false;
  const bool is_half = left.scalar_type() == at::kBFloat16 || left.scalar_type() == at::kHalf;
  if ((!is_half && !fp8) || left.dim() != 2 || right.dim() != 2) return false;
  if (left.size(0) * left.size(1) * right.size(1) < kLeastMultiplications) return false;
  if (bias && (!bias->is_contiguous() || reinterpret_cast<uintptr_t>(bias->const_data_ptr()) % 16 != 0)) return false;
  return layout_of(left) && layout_of(right);
}

void multiply(const GemmProblem& problem, at::Tensor out, const GemmCachePtr& cache, bool adds) {
  const bool is_aligned = reinterpret_cast<uintptr_t>(out.const_data_ptr()) % 16 == 0;
  const bool may_choose = cache && is_aligned && out.is_contiguous() && is_tunable(problem);
  if (may_choose && cache->run(problem, out, adds)) return;
  if (!out.is_cpu() || is_aligned || adds) return with_operators(problem, out, adds);
  // MKL adds in another order for such a result: a gradient would depend on what lies before it in a flat buffer.
  at::Tensor aligned = at::empty_like(out);
  with_operators(problem, aligned, adds);
  out.copy_(aligned);
}

}  // namespace dslaunch::runtime::device
