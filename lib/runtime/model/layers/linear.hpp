// Linear layers, matmul and addmm with a weight, whose backward is ours, and what puts them into graphs
// (docs/kernels.md). Results are those of PyTorch's operators, except for the order of additions and intermediate
// rounding; where nothing of ours applies (other dtypes, autocast), PyTorch's operator runs. On other devices than GPUs
// they compute the same results, bit by bit. Any thread; twice differentiable.
#pragma once
#include <ATen/core/Tensor.h>
#include <c10/core/Scalar.h>
#include <torch/csrc/jit/api/module.h>
#include <torch/csrc/jit/ir/ir.h>

#include <cstdint>
#include <optional>
#include <vector>

#include "config/job_config.hpp"
#include "runtime/device/gemm.hpp"

namespace dslaunch::runtime::model::layers {

inline constexpr char kLinearOperator[] = "dslaunch::linear";
inline constexpr char kAddmmOperator[] = "dslaunch::addmm";
inline constexpr char kMatmulOperator[] = "dslaunch::matmul";
// The arguments of the two, then those of a Cut.
inline constexpr char kLinearCutOperator[] = "dslaunch::linear_cut";
inline constexpr char kAddmmCutOperator[] = "dslaunch::addmm_cut";

// What the backward of a GEMM with a weight does otherwise than PyTorch's.
struct GemmOptions {
  // The gradient of the bias takes two kernels of ours, if both weight and bias are trained.
  bool sums_bias = true;
  // The gradient of a weight that is a unit's parameter itself (not a cast one; it may be transposed) is written where
  // it is summed (runtime/state/gradient_destination.hpp), if its owner offers that.
  bool writes_gradient = true;
  // Of the three GEMMs; null: PyTorch's algorithms.
  device::GemmCachePtr gemms = {};
  // The three GEMMs compute in fp8 where the layer is in bf16 and its sizes are multiples of 16, without gradients as
  // well; not twice differentiable then. Empty: in the type of their operands.
  std::optional<config::Fp8Recipe> fp8 = {};
  // Between forward and backward weights are kept in fp8 as well, as the input's gradient reads them: a byte a number.
  // False: they are cast again in backward.
  bool keeps_fp8_weights = true;
};

// at::linear, at::matmul and at::addmm. If a backward defers weight gradients (runtime/state/deferred_gradients.hpp),
// the GEMM for the gradient of a unit's parameter, as above, is computed later; the input and the output gradient
// are kept until then.
at::Tensor fused_linear(const at::Tensor& input, const at::Tensor& weight, const std::optional<at::Tensor>& bias,
                        GemmOptions options = {});
at::Tensor fused_matmul(const at::Tensor& input, const at::Tensor& weight, GemmOptions options = {});
at::Tensor fused_addmm(const at::Tensor& bias, const at::Tensor& input, const at::Tensor& weight,
                       const at::Scalar& beta = 1, const at::Scalar& alpha = 1, GemmOptions options = {});

// Where the output of a GEMM is cut: by at::split, with one size or several, or by at::chunk.
struct Cut {
  enum class Kind : uint8_t { kSize, kSizes, kChunks };
  Kind kind = Kind::kSize;
  std::vector<int64_t> pieces;  // the size, the sizes, or the number
  int64_t dim = 0;
  std::optional<std::vector<int64_t>> shape = {};  // of the output, by a view before it is cut
};

// fused_linear() and fused_addmm(), cut. Where the cut is along the output's columns and the gradient of the bias is
// summed by our kernel, backward puts the gradients of the pieces together and sums them in one pass.
std::vector<at::Tensor> fused_linear_cut(const at::Tensor& input, const at::Tensor& weight,
                                         const std::optional<at::Tensor>& bias, const Cut& cut,
                                         GemmOptions options = {});
std::vector<at::Tensor> fused_addmm_cut(const at::Tensor& bias, const at::Tensor& input, const at::Tensor& weight,
                                        const at::Scalar& beta, const at::Scalar& alpha, const Cut& cut,
                                        GemmOptions options = {});

// `out`, a GEMM to which `bias` [columns] was added without its history: the gradient of `out` is summed over its
// rows into that of the bias. `out` has any dims whose last ones hold the columns.
at::Tensor with_bias(const at::Tensor& out, const at::Tensor& bias);

// Whether an operator computed the value, so that it is not a parameter, transposed or not.
bool is_computed(const torch::jit::Value* value);

// GemmOptions::sums_bias. For a node of aten::linear or aten::addmm, which it destroys.
void sum_bias_gradient(torch::jit::Node* node);

// Every linear, matmul and addmm whose weight may be a parameter by one that can defer its gradient and, with `writes`,
// has GemmOptions::writes_gradient. Before units are intercepted.
void take_weight_gradients(const torch::jit::Module& model, bool writes);

// A linear layer for queries, keys and values at once: its output is split or chunked, maybe after a view, and nothing
// else reads it. GEMM and cut become one operator, whose backward gets the gradients of the pieces and puts them
// together while it sums the bias's; autograd would write them and read them again.
//
// In all forwards, whose calls it inlines; of GEMMs that were replaced before. Returns the number
// of GEMMs.
int fuse_linear_cuts(const torch::jit::Module& model);

}  // namespace dslaunch::runtime::model::layers
