// Products of matrices (GEMM) on GPUs with the algorithm that is the fastest there. cuBLASLt has several for each
// product, and its heuristics do not always name the fastest first. The first time that a process meets a product, it
// measures them in turns beside PyTorch's operator (autotuning). The choice is kept in the user's cache, beside
// generated kernels, so that later processes on this host take the same one: algorithms may differ in the last bits.
//
// Any thread. Products are enqueued on the current stream.
#pragma once
#include <ATen/core/Tensor.h>

#include <optional>

namespace dslaunch::runtime::device {

struct GemmProblem {
  at::Tensor left, right;               // [m, k] and [k, n], of one type
  std::optional<at::Tensor> bias = {};  // [n], of that type; added to every row
};

// Whether products of this process choose, off at first. Before the first product.
void choose_algorithms(bool is_on);
// Whether compute() would choose: on, on a GPU, of 16 bits, large enough, and laid out as cuBLASLt's fast kernels need
// it.
bool has_choice(const GemmProblem& product);

// The product in `out` [m, n], contiguous: of the factors' type, or of fp32 (on the CPU: of any two types). `adds`,
// without a bias: to what is there (beta = 1). Not differentiable.
void compute(const GemmProblem& product, at::Tensor out, bool adds = false);

struct Counts {
  int measured = 0, read = 0;  // choices, of products of one shape
  double measuring_seconds = 0;
};
Counts counts_of_process();

}  // namespace dslaunch::runtime::device
