// The GEMM of a head and its cross entropy, a part of the rows at a time, and the pass that brings the two together
// (docs/kernels.md). At a vocabulary of 50,000 logits and their gradient take more memory than the activations of
// several layers. Any thread; twice differentiable.
#pragma once
#include <ATen/core/Tensor.h>
#include <torch/csrc/jit/api/module.h>

#include <cstdint>
#include <optional>

#include "runtime/device/gemm.hpp"
#include "runtime/model/tensor_parallel/sharded_cross_entropy.hpp"

namespace dslaunch::runtime::model::layers {

inline constexpr char kChunkedOperator[] = "dslaunch::chunked_cross_entropy";

// A GEMM with a head's weight and the cross entropy of its rows, as nodes of a graph state it.
struct HeadLoss {
  bool is_out_in = true;  // the weight's layout: at::linear's [classes, in]; else at::matmul's and at::addmm's
  int64_t classes = 0;    // columns of the logits as the loss reads them
  int64_t reduction = 1, ignore_index = -100;  // of at::cross_entropy_loss
  double label_smoothing = 0.0;
  bool in_float = false;            // of fused_cross_entropy()
  int64_t chunk_rows = 0;           // rows whose logits exist at a time; 0: as many as keep a GPU busy
  device::GemmCachePtr gemms = {};  // of the GEMMs; null: PyTorch's algorithms
  // Tensor ranks that have the rest of the weight's classes and of the bias: the loss is that of all classes, the
  // input's gradient a part of the sum over the ranks. Then `classes` does not matter. Null: all classes are here.
  tensor_parallel::SharedClassesPtr shared = {};
};

// fused_cross_entropy() of input [..., in] times weight, plus bias [classes], viewed as [rows, classes], without whole
// logits: chunk by chunk their rows are computed, with their loss and at once their gradients. In fp16, where those of
// a mean would underflow before the loss scale is known, backward computes the chunks again. Where the loss takes other
// types, autocast, label smoothing, class weights or no reduction, the operators compute it one by one.
at::Tensor chunked_cross_entropy(const at::Tensor& input, const at::Tensor& weight,
                                 const std::optional<at::Tensor>& bias, const at::Tensor& labels,
                                 const std::optional<at::Tensor>& class_weights, const HeadLoss& loss);

// For each cross entropy that ours has replaced and whose logits, possibly without their last positions and viewed as
// rows, come from a GEMM with a weight that nothing else reads: both become one operator. Calls of modules that end
// in that GEMM (a linear layer, transformers' models) are inlined into the caller, so that their own parameters are
// read there and belong to its unit. Returns the number of losses. Before units are intercepted.
int chunk_heads(const torch::jit::Module& model);

}  // namespace dslaunch::runtime::model::layers
