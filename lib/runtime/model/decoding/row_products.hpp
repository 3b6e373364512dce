// Linear layers of a step, which reads one token of each of a few texts: the kernel reads weights at the memory's rate,
// where a GEMM's kernels do not.
//
//     dslaunch::linears_of_rows(input, weight, bias?, weight, bias?, ...) -> (output, output, ...)
//
// as aten::linear for each weight, which runs where the kernel does not apply. Not differentiable. Any thread.
// dslaunch::quantized_linears_of_rows(input, bias?, bias?, ...) has the weights as attributes of its node.
#pragma once
#include <ATen/core/Tensor.h>
#include <torch/csrc/jit/ir/ir.h>

#include <vector>

#include "runtime/model/decoding/quantized_weight.hpp"

namespace dslaunch::runtime::model::decoding {

// `biases`: undefined for a layer without.
std::vector<at::Tensor> linears_of_rows(const at::Tensor& input, const std::vector<at::Tensor>& weights,
                                        const std::vector<at::Tensor>& biases);

// Where the kernel does not apply, each weight is expanded for a GEMM.
std::vector<at::Tensor> quantized_linears_of_rows(const at::Tensor& input,
                                                  const std::vector<QuantizedWeightPtr>& weights,
                                                  const std::vector<at::Tensor>& biases);

// In a graph, for every aten::linear outside branches; those of one input become one node. Returns the number of nodes.
int use_row_products(torch::jit::Graph& graph);

}  // namespace dslaunch::runtime::model::decoding
