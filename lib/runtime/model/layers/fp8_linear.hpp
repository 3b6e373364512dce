// Linear layers in fp8 (docs/precision.md) that read one input: it is cast once for all of them, and their parts of its
// gradient are added by the GEMMs. Any thread; not twice differentiable.
#pragma once
#include <ATen/core/Tensor.h>
#include <torch/csrc/autograd/variable.h>

#include <cstdint>
#include <optional>
#include <vector>

#include "runtime/model/layers/gemm_operands.hpp"
#include "runtime/model/layers/linear.hpp"

namespace dslaunch::runtime::model::layers {

inline constexpr char kFp8LinearsOperator[] = "dslaunch::fp8_linears";

struct Fp8Layer {
  Weight weight;
  std::optional<at::Tensor> bias = {};
};

// Of the output of one layer; see pieces_of().
struct Pieces {
  std::vector<int64_t> shape = {}, widths = {};
};

// Whether GPUs can: both in bf16, with sizes that are multiples of 16.
bool computes_in_fp8(const at::Tensor& input, const Weight& weight);

// Of layers that fit() and compute in fp8, with weights in one layout: the output of each, or the pieces of a single
// one. `options.fp8` is there.
torch::autograd::variable_list fp8_linears(const at::Tensor& input, const std::vector<Fp8Layer>& layers,
                                           const GemmOptions& options, const Pieces& pieces = {});

// dslaunch::linear nodes with the recipe that read one value become one node, in all forwards, whose calls it inlines.
// Returns how many nodes were joined.
int join_fp8_layers(const torch::jit::Module& model);

}  // namespace dslaunch::runtime::model::layers
