// GEMMs on GPUs with the algorithm that is the fastest there. cuBLASLt has several for each
// GEMM, and its heuristics do not always name the fastest first. The first time that a process meets a GEMM, it
// measures them in turns beside PyTorch's operator (autotuning). The choice is kept in the user's cache, beside
// generated kernels, so that later processes on this host take the same one: algorithms may differ in the last bits.
// Whether a model's GEMMs choose is said where it is loaded: its graph holds the cache of choices, or none.
//
// Any thread. GEMMs are enqueued on the current stream.
#pragma once
#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>

#include <memory>
#include <optional>
#include <string>

namespace dslaunch::runtime::device {

// What the numbers of factors in fp8 are to be multiplied with: fp32, one number each, on the device.
struct Fp8Factors {
  at::Tensor left, right;
  bool fast = false;  // sums may be less precise
};

struct GemmProblem {
  at::Tensor left, right;               // [m, k] and [k, n], of one type
  std::optional<at::Tensor> bias = {};  // [n], of that type, beside fp8 in bf16; added to every row
  std::optional<Fp8Factors> fp8 = {};   // the factors are in types of 8 bits
};

// Whether there are algorithms to choose from: on a GPU, of 8 or 16 bits, large enough, and laid out as cuBLASLt's fast
// kernels need it.
bool is_tunable(const GemmProblem& problem);

// The algorithms that were chosen.
class GemmCache : public torch::CustomClassHolder {
 public:
  // `directory`: where choices are kept, kernel_directory() for the user's; empty: in memory only.
  explicit GemmCache(std::string directory);
  ~GemmCache() override;

  // Of a tunable problem, with its algorithm, which is measured now if it is not known. False, with nothing done:
  // PyTorch's operator is the fastest, or nothing can be measured now. The rest as multiply().
  bool run(const GemmProblem& problem, const at::Tensor& out, bool adds);

  struct Counts {
    int measured = 0, read = 0;  // choices, of GEMMs of one shape
    double measuring_seconds = 0;
  };
  Counts counts() const;

 private:
  class Choices;
  const std::unique_ptr<Choices> choices_;
};

using GemmCachePtr = c10::intrusive_ptr<GemmCache>;

// The GEMM in `out` [m, n], contiguous: of the factors' type, beside fp8 in bf16, or of fp32 (on the CPU: of any two
// types, and not in fp8). `adds`,
// without a bias: to what is there (beta = 1). `cache`: null: with PyTorch's operator. Not differentiable.
void multiply(const GemmProblem& problem, at::Tensor out, const GemmCachePtr& cache, bool adds = false);

}  // namespace dslaunch::runtime::device
