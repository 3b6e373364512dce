#include "runtime/model/rewrites/autocast_regions.hpp"

#include <ATen/autocast_mode.h>
#include <torch/csrc/jit/ir/ir.h>
#include <torch/csrc/jit/runtime/custom_operator.h>

#include <vector>

#include "runtime/model/graph/walk.hpp"

namespace dslaunch::runtime::model::rewrites {
namespace {

using torch::jit::Node;

struct AutocastState {
  at::DeviceType device;
  bool enabled;
  at::ScalarType dtype;
  bool cache;
};

// The state before each region that this thread has entered, from the outermost region on.
std::vector<AutocastState>& entered_regions() {
  static thread_local std::vector<AutocastState> regions;
  return regions;
}

// torch.autocast, torch.cuda.amp.autocast and torch.cpu.amp.autocast keep these three attributes when scripted.
bool is_autocast(const c10::ClassType& type) {
  return type.name() && type.name()->name() == "autocast" && type.hasAttribute("_enabled") &&
         type.hasAttribute("device") && type.hasAttribute("fast_dtype");
}

void enter_region(torch::jit::Stack& stack) {
  const auto region = torch::jit::pop(stack).toObject();
  const auto device = at::Device(region->getAttr("device").toStringRef()).type();
  entered_regions().push_back({device, at::autocast::is_autocast_enabled(device),
                               at::autocast::get_autocast_dtype(device), at::autocast::is_autocast_cache_enabled()});
  at::autocast::set_autocast_enabled(device, region->getAttr("_enabled").toBool());
  at::autocast::set_autocast_dtype(device, static_cast<at::ScalarType>(region->getAttr("fast_dtype").toInt()));
  at::autocast::set_autocast_cache_enabled(false);  // the cache keeps casts of leaf parameters, and ours are not leaves
}

void restore_innermost() {
  const AutocastState before = entered_regions().back();
  entered_regions().pop_back();
  at::autocast::set_autocast_enabled(before.device, before.enabled);
  at::autocast::set_autocast_dtype(before.device, before.dtype);
  at::autocast::set_autocast_cache_enabled(before.cache);
}

void exit_region(torch::jit::Stack& stack) {
  torch::jit::drop(stack, 1);
  restore_innermost();
}

constexpr char kEnter[] = "dslaunch::enter_autocast";
constexpr char kExit[] = "dslaunch::leave_autocast";
// Declared with side effects for TorchScript's passes, so that no operator moves across them.
const torch::jit::RegisterOperators kRegistration(
    {torch::jit::Operator("dslaunch::enter_autocast(Any region) -> ()", enter_region,
                          c10::AliasAnalysisKind::CONSERVATIVE),
     torch::jit::Operator("dslaunch::leave_autocast(Any region) -> ()", exit_region,
                          c10::AliasAnalysisKind::CONSERVATIVE)});

}  // namespace

void apply_autocast_regions(const torch::jit::Module& model) {
  graph::for_every_node(model, [](Node* node) {
    const bool enters = node->kind() == c10::prim::Enter;
    if (!enters && node->kind() != c10::prim::Exit) return;
    const auto region = node->input(0)->type()->cast<c10::ClassType>();
    if (!region || !is_autocast(*region)) return;
    auto* change = node->owningGraph()->create(c10::Symbol::fromQualString(enters ? kEnter : kExit), {node->input(0)},
                                               /*num_outputs=*/0);
    change->insertAfter(node);
  });
}

AutocastRegionsScope::AutocastRegionsScope() : depth_(entered_regions().size()) {}

AutocastRegionsScope::~AutocastRegionsScope() {
  while (entered_regions().size() > depth_) restore_innermost();
}

}  // namespace dslaunch::runtime::model::rewrites
