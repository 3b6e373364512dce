// The cache of measured GEMMs (runtime/device/gemm.hpp) on its way from a model's loading to the GEMMs of
// its backward. Operators of TorchScript have no argument for it: it is an attribute of their nodes, so that two models
// of a process may differ in it, and autograd's nodes keep it for their backward, which runs on other threads.
#pragma once
#include <torch/csrc/autograd/custom_function.h>
#include <torch/csrc/jit/api/module.h>
#include <torch/csrc/jit/ir/ir.h>
#include <torch/csrc/jit/runtime/operator.h>

#include <optional>

#include "config/job_config.hpp"
#include "runtime/device/gemm.hpp"

namespace dslaunch::runtime::model::layers {

// How the GEMMs of a node compute, beside what its arguments say.
struct NodeGemms {
  device::GemmCachePtr cache;            // null: with PyTorch's algorithms
  std::optional<config::Fp8Recipe> fp8;  // empty: in the type of their operands
  bool keeps_fp8_weights = false;        // GemmOptions
};

// Gives it to all operators of ours with GEMMs, in all graphs of the model; after all passes that make such. Returns
// their number. Of a model that tensor ranks share, to those GEMMs of which each rank has a part: ranks that measure
// differently would get other bits of what they all compute, and a router would send tokens to other experts.
int hand_gemms(const torch::jit::Module& model, const device::GemmCachePtr& gemms);

NodeGemms gemms_of(const torch::jit::Node* node);
// Before any graph runs; copies of the node have it as well.
void set_fp8(torch::jit::Node* node, config::Fp8Recipe recipe, bool keeps_weights);

// What to register for such an operator.
template <void (*kRun)(torch::jit::Stack& stack, const NodeGemms& gemms)>
torch::jit::Operation with_gemms(const torch::jit::Node* node) {
  return [gemms = gemms_of(node)](torch::jit::Stack& stack) { kRun(stack, gemms); };
}

// Between a forward and its backward; null as well.
void keep_gemms(torch::autograd::AutogradContext& context, const device::GemmCachePtr& gemms);
device::GemmCachePtr kept_gemms(const torch::autograd::AutogradContext& context);

}  // namespace dslaunch::runtime::model::layers
