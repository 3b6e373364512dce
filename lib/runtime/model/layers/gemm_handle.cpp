#include "runtime/model/layers/gemm_handle.hpp"

#include <algorithm>
#include <set>
#include <string_view>

#include "runtime/model/graph/walk.hpp"
#include "runtime/model/layers/chunked_head.hpp"
#include "runtime/model/layers/fp8_linear.hpp"
#include "runtime/model/layers/linear.hpp"
#include "runtime/model/tensor_parallel/tensor_operators.hpp"

namespace dslaunch::runtime::model::layers {
namespace {

using torch::autograd::AutogradContext;
using torch::jit::Node;

constexpr char kKept[] = "gemms";
const auto kGemms = c10::Symbol::attr("gemms"), kFp8 = c10::Symbol::attr("fp8"),
           kKeepsWeights = c10::Symbol::attr("keeps_fp8_weights");  // of a node

bool has_gemms(const Node* node) {
  static const std::set<std::string_view> operators{kLinearOperator,    kMatmulOperator,   kAddmmOperator,
                                                    kLinearCutOperator, kAddmmCutOperator, kChunkedOperator,
                                                    kFp8LinearsOperator};
  return operators.contains(node->kind().toQualString());
}

bool is(const Node* node, std::string_view kind) {
  return kind == node->kind().toQualString();
}

// Whether each of several tensor ranks computes a part of the GEMM.
bool is_split(const Node* node) {
  const auto reads = node->inputs();
  const auto is_copied = [](const torch::jit::Value* value) {
    return is(value->node(), tensor_parallel::kCopyOperator);
  };
  if (tensor_parallel::tensor_group_of(node) || std::any_of(reads.begin(), reads.end(), is_copied)) return true;
  if (node->outputs().size() != 1) return false;
  const auto& uses = node->output()->uses();
  return std::any_of(uses.begin(), uses.end(),
                     [](const auto& use) { return is(use.user, tensor_parallel::kReduceOperator); });
}

}  // namespace

int hand_gemms(const torch::jit::Module& model, const device::GemmCachePtr& gemms) {
  const c10::IValue handle(gemms);  // one: nodes that LibTorch finds equal stay so
  bool is_shared = false;
  graph::for_every_node(model,
                        [&](const Node* node) { is_shared |= tensor_parallel::tensor_group_of(node) != nullptr; });
  int count = 0;
  graph::for_every_node(model, [&](Node* node) {
    if (!has_gemms(node) || (is_shared && !is_split(node))) return;
    node->ival_(kGemms, handle);
    count += 1;
  });
  return count;
}

NodeGemms gemms_of(const Node* node) {
  NodeGemms out;
  if (node->hasAttribute(kGemms)) out.cache = node->ival(kGemms).toCustomClass<device::GemmCache>();
  if (node->hasAttribute(kFp8)) out.fp8 = static_cast<config::Fp8Recipe>(node->i(kFp8));
  out.keeps_fp8_weights = node->hasAttribute(kKeepsWeights) && node->i(kKeepsWeights) != 0;
  return out;
}

void set_fp8(Node* node, config::Fp8Recipe recipe, bool keeps_weights) {
  node->i_(kFp8, static_cast<int64_t>(recipe));
  node->i_(kKeepsWeights, keeps_weights ? 1 : 0);
}

void keep_gemms(AutogradContext& context, const device::GemmCachePtr& gemms) {
  if (gemms) context.saved_data[kKept] = gemms;
}

device::GemmCachePtr kept_gemms(const AutogradContext& context) {
  const auto found = context.saved_data.find(kKept);
  return found == context.saved_data.end() ? device::GemmCachePtr() : found->second.toCustomClass<device::GemmCache>();
}

}  // namespace dslaunch::runtime::model::layers
