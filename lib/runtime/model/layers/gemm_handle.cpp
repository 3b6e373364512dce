#include "runtime/model/layers/gemm_handle.hpp"

#include <set>
#include <string_view>

#include "runtime/model/graph/walk.hpp"
#include "runtime/model/layers/chunked_head.hpp"
#include "runtime/model/layers/linear.hpp"

namespace dslaunch::runtime::model::layers {
namespace {

using torch::autograd::AutogradContext;
using torch::jit::Node;

constexpr char kKept[] = "gemms";
const auto kGemms = c10::Symbol::attr("gemms");  // of a node

bool has_gemms(const Node* node) {
  static const std::set<std::string_view> operators{kLinearOperator,    kMatmulOperator,   kAddmmOperator,
                                                    kLinearCutOperator, kAddmmCutOperator, kChunkedOperator};
  return operators.contains(node->kind().toQualString());
}

}  // namespace

int hand_gemms(const torch::jit::Module& model, const device::GemmCachePtr& gemms) {
  const c10::IValue handle(gemms);  // one: nodes that LibTorch finds equal stay so
  int count = 0;
  graph::for_every_node(model, [&](Node* node) {
    if (!has_gemms(node)) return;
    node->ival_(kGemms, handle);
    count += 1;
  });
  return count;
}

device::GemmCachePtr gemms_of(const Node* node) {
  return node->hasAttribute(kGemms) ? node->ival(kGemms).toCustomClass<device::GemmCache>() : device::GemmCachePtr();
}

void keep_gemms(AutogradContext& context, const device::GemmCachePtr& gemms) {
  if (gemms) context.saved_data[kKept] = gemms;
}

device::GemmCachePtr kept_gemms(const AutogradContext& context) {
  const auto found = context.saved_data.find(kKept);
  return found == context.saved_data.end() ? device::GemmCachePtr() : found->second.toCustomClass<device::GemmCache>();
}

}  // namespace dslaunch::runtime::model::layers
