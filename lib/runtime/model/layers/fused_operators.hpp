// PyTorch operators that move less memory: on GPUs by kernels of ours, and by gradients that are written where they are
// summed (docs/kernels.md). Each returns the result of the PyTorch operator of that name, except for the order of
// additions and intermediate rounding; where neither applies (other dtypes, autocast), the PyTorch operator runs. Any
// thread; twice differentiable.
#pragma once
#include <ATen/core/Tensor.h>
#include <c10/core/Scalar.h>

#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "runtime/device/gemm.hpp"

namespace dslaunch::runtime::model::layers {

// at::cross_entropy_loss; with `in_float` of the logits in fp32, without copying them. One kernel each for forward and
// backward for logits [rows, classes] in fp32 (with `in_float` also bf16 and fp16) and labels int64 [rows], with mean
// or sum, without weights and label smoothing.
at::Tensor fused_cross_entropy(const at::Tensor& logits, const at::Tensor& labels,
                               const std::optional<at::Tensor>& weight, int64_t reduction, int64_t ignore_index,
                               double label_smoothing, bool in_float);

// A GEMM with a head's weight and the cross entropy of its rows, as nodes of a graph state it.
struct HeadLoss {
  bool is_out_in = true;  // the weight's layout: at::linear's [classes, in]; else at::matmul's and at::addmm's
  int64_t classes = 0;    // columns of the logits as the loss reads them
  int64_t reduction = 1, ignore_index = -100;  // of at::cross_entropy_loss
  double label_smoothing = 0.0;
  bool in_float = false;            // of fused_cross_entropy()
  int64_t chunk_rows = 0;           // rows whose logits exist at a time; 0: as many as keep a GPU busy
  device::GemmCachePtr gemms = {};  // of the GEMMs; null: PyTorch's algorithms
};

// fused_cross_entropy() of input [..., in] times weight, plus bias [classes], viewed as [rows, classes], without whole
// logits: chunk by chunk their rows are computed, with their loss and at once their gradients. In fp16, where those of
// a mean would underflow before the loss scale is known, backward computes the chunks again. Where the loss takes other
// types, autocast, label smoothing, class weights or no reduction, the operators compute it one by one.
at::Tensor chunked_cross_entropy(const at::Tensor& input, const at::Tensor& weight,
                                 const std::optional<at::Tensor>& bias, const at::Tensor& labels,
                                 const std::optional<at::Tensor>& class_weights, const HeadLoss& loss);

// at::layer_norm. One kernel each for forward and backward over the last dims if all tensors have the same dtype and
// the normalised dims have 8 to 8192 elements, a multiple of 8.
at::Tensor fused_layer_norm(const at::Tensor& input, at::IntArrayRef normalized_shape,
                            const std::optional<at::Tensor>& weight, const std::optional<at::Tensor>& bias, double eps);

// The same, and the input, for what reads it besides. Where fused_layer_norm() has a kernel, and on the CPU, backward
// gets the gradients of both: the kernel adds the second one in fp32 and rounds the sum; on the CPU the gradients are
// rounded before they are added, as by autograd. The second result shares the input's memory; nobody may write to it.
std::pair<at::Tensor, at::Tensor> fused_layer_norm_and_input(const at::Tensor& input, at::IntArrayRef normalized_shape,
                                                             const std::optional<at::Tensor>& weight,
                                                             const std::optional<at::Tensor>& bias, double eps);

// What the backward of a GEMM with a weight does otherwise than PyTorch's.
struct GemmOptions {
  // The gradient of the bias takes two kernels of ours, if both weight and bias are trained.
  bool sums_bias = true;
  // The gradient of a weight that is a unit's parameter itself (not a cast one; it may be transposed) is written where
  // it is summed (runtime/state/gradient_destination.hpp), if its owner offers that.
  bool writes_gradient = true;
  // Of the three GEMMs; null: PyTorch's algorithms.
  device::GemmCachePtr gemms = {};
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

}  // namespace dslaunch::runtime::model::layers
