#include "runtime/model/rewrites/training_flag_rewrite.hpp"
#include "runtime/model/graph/walk.hpp"

#include <torch/csrc/jit/api/function_impl.h>
#include <torch/csrc/jit/ir/constants.h>
#include <torch/csrc/jit/ir/ir.h>

#include <algorithm>
#include <optional>
#include <set>
#include <string_view>

namespace dslaunch::runtime::model::rewrites {
namespace {

using torch::jit::Block;
using torch::jit::Graph;
using torch::jit::Node;
using torch::jit::Value;

c10::TypeKind hook_kind(const c10::ClassTypePtr& type) {
  const auto attribute = type->findAttribute("_is_full_backward_hook");
  return attribute ? attribute->kind() : c10::TypeKind::AnyType;
}

bool calls_functional(const Node* node) {
  if (node->kind() != c10::prim::CallFunction) return false;
  const auto type = node->input(0)->type()->cast<c10::FunctionType>();
  return type && type->function()->qualname().prefix() == "__torch__.torch.nn.functional";
}

// A traced module has an attribute whose type torch.jit.trace leaves general and torch.jit.script makes exact, except
// for classes without annotations of their own.
bool may_be_traced(const c10::ClassTypePtr& type) {
  return hook_kind(type) == c10::TypeKind::OptionalType && type->hasAttribute("training");
}

// A module that may be traced but was scripted is recognised by features that a trace rarely has: constants, scripted
// children, calls of torch.nn.functional. Only for notes; the modes of a trace with such features are followed anyway.
bool is_certainly_traced(const torch::jit::Module& module) {
  const auto type = module.type();
  if (!may_be_traced(type) || type->numConstants() > 0) return false;
  for (const auto& child : module.children()) {
    if (hook_kind(child.type()) == c10::TypeKind::NoneType) return false;
  }
  return std::none_of(type->methods().begin(), type->methods().end(), [](torch::jit::Function* method) {
    if (!method->isGraphFunction()) return false;
    method->ensure_defined();
    return graph::any_node(torch::jit::toGraphFunction(*method).graph()->block(), calls_functional);
  });
}

std::optional<size_t> argument_named(const Node* node, std::string_view name) {
  const auto* schema = node->maybeSchema();
  if (!schema) return std::nullopt;
  for (size_t i = 0; i < schema->arguments().size() && i < node->inputs().size(); ++i) {
    if (schema->arguments()[i].name() == name) return i;
  }
  return std::nullopt;
}

std::optional<size_t> mode_argument(const Node* node) {
  for (const char* name : {"train", "training", "use_input_stats"}) {
    if (auto found = argument_named(node, name)) return found;
  }
  return std::nullopt;
}

bool is_none(const Value* value) {
  const auto constant = torch::jit::toIValue(value);
  return constant && constant->isNone();
}

// A norm without running statistics uses the statistics of its batch in both modes.
bool has_two_modes(const Node* node) {
  const auto statistics = argument_named(node, "running_mean");
  return !statistics || !is_none(node->input(*statistics));
}

class ModeRewriter {
 public:
  ModeRewriter(const torch::jit::Module& module, const std::string& path, Graph& graph, TracedModes& out)
      : module_(module), path_(path), graph_(graph), out_(out) {}

  void visit(Block* block) {
    graph::for_each_node(block, [&](Node* node) {
      if (auto mode = mode_argument(node)) {
        bind_flag(node, *mode);
      } else if (auto probability = argument_named(node, "dropout_p")) {
        bind_probability(node, *probability);
      } else if (samples_mask(node) && is_certainly_traced(module_)) {
        note(out_.unconditional_masks);
      }
    });
  }

 private:
  void bind_flag(Node* node, size_t mode) {
    const auto constant = torch::jit::toIValue(node->input(mode));
    if (!constant || !constant->isBool() || !has_two_modes(node)) return;
    if (!constant->toBool()) return report_off(node);
    node->replaceInput(mode, training_flag(node));
    if (seems_cumulative(node)) note(out_.averages_fixed);
  }

  // With momentum=None a norm uses the factor 1/n for its n-th batch, and the trace contains the factor of the batch
  // with which it was made. The module has counted that batch, unless the tool that made the file has reset the count.
  // An ordinary norm may have seen as many batches by chance; norms with the usual momenta, PyTorch's default and 0.01,
  // are assumed ordinary.
  bool seems_cumulative(const Node* node) const {
    const auto momentum = argument_named(node, "momentum");
    if (!momentum || !module_.hasattr("num_batches_tracked")) return false;
    const auto factor = torch::jit::toIValue(node->input(*momentum));
    const auto held = module_.attr("num_batches_tracked");
    if (!factor || !factor->isDouble() || !held.isTensor() || held.toTensor().numel() != 1) return false;
    const double number = factor->toDouble();
    if (number == 0.1 || number == 0.01) return false;
    const auto batches = held.toTensor().item<double>();
    return number == 1 / batches || number == 1 / (batches + 1);
  }

  // Stochastic depth as written in Python, under an `if self.training` that a trace does not have:
  // x.new_empty(shape).bernoulli_(p), or floor(p + rand(shape)).
  static bool samples_mask(const Node* node) {
    const std::string_view kind = node->kind().toQualString();
    if (kind == "aten::bernoulli_" || kind == "aten::bernoulli") return true;
    if ((kind != "aten::floor_" && kind != "aten::floor") || node->inputs().empty()) return false;
    const Node* sum = node->input(0)->node();
    return sum->kind() == c10::aten::add &&
           std::any_of(sum->inputs().begin(), sum->inputs().end(), [](const Value* part) {
             return part->node()->kind() == c10::aten::rand || part->node()->kind() == c10::aten::rand_like;
           });
  }

  // Attention takes no flag: its dropout probability is 0 in evaluation. p becomes p * float(training).
  void bind_probability(Node* node, size_t probability) {
    const auto constant = torch::jit::toIValue(node->input(probability));
    if (!constant || !constant->isDouble() || constant->toDouble() == 0) return;
    Value* flag = training_flag(node);
    torch::jit::WithInsertPoint here(node);
    Value* as_number = graph_.insert(c10::Symbol::fromQualString("aten::Float"), {flag});
    node->replaceInput(probability, graph_.insert(c10::aten::mul, {node->input(probability), as_number}));
  }

  Value* training_flag(Node* user) {
    torch::jit::WithInsertPoint here(user);
    return graph_.insertGetAttr(graph_.inputs()[0], "training");
  }

  void report_off(const Node* node) {
    const auto p = argument_named(node, "p");
    if (p) {
      const auto probability = torch::jit::toIValue(node->input(*p));
      if (probability && probability->isDouble() && probability->toDouble() == 0) return;
    }
    const bool is_norm = argument_named(node, "running_mean").has_value();
    note(is_norm ? out_.statistics_off : out_.dropout_off);
  }

  void note(std::vector<std::string>& names) const {
    if (names.empty() || names.back() != path_) names.push_back(path_);
  }

  const torch::jit::Module& module_;
  const std::string& path_;
  Graph& graph_;
  TracedModes& out_;
};

void rewrite_module(const torch::jit::Module& module, const std::string& path, std::set<const c10::ClassType*>& seen,
                    TracedModes& out) {
  if (may_be_traced(module.type()) && seen.insert(module.type().get()).second) {
    for (auto* method : module.type()->methods()) {
      if (!method->isGraphFunction()) continue;
      method->ensure_defined();
      auto graph = torch::jit::toGraphFunction(*method).graph();
      ModeRewriter(module, path, *graph, out).visit(graph->block());
    }
  }
  for (const auto& child : module.named_children()) {
    rewrite_module(child.value, path.empty() ? child.name : path + "." + child.name, seen, out);
  }
}

}  // namespace

TracedModes bind_training_flag(const torch::jit::Module& model) {
  TracedModes out;
  std::set<const c10::ClassType*> seen;
  rewrite_module(model, "", seen, out);
  return out;
}

bool is_trace(const torch::jit::Module& model) {
  if (!is_certainly_traced(model)) return false;
  for (const auto& module : model.modules()) {
    const bool has_own = module.parameters(/*recurse=*/false).size() > 0;
    if (has_own && hook_kind(module.type()) == c10::TypeKind::OptionalType) return true;
  }
  return false;
}

std::vector<ParameterLocation> find_traced_state(const torch::jit::Module& model) {
  std::vector<ParameterLocation> out;
  for (const auto& module : model.modules()) {
    if (!may_be_traced(module.type())) continue;
    const auto object = module._ivalue();
    for (size_t slot = 0; slot < module.type()->numAttributes(); ++slot) {
      const auto& held = object->getSlot(slot);
      const bool is_state = module.type()->is_buffer(slot) || module.type()->is_parameter(slot);
      if (is_state && held.isTensor() && !held.toTensor().requires_grad()) out.push_back({object, slot});
    }
  }
  return out;
}

void drop_history(const std::vector<ParameterLocation>& state) {
  for (const auto& location : state) {
    at::Tensor value = location.get();
    if (!value.requires_grad()) continue;
    if (value.is_view()) {
      location.set(value.detach());
    } else {
      value.detach_();
    }
  }
}

}  // namespace dslaunch::runtime::model::rewrites
