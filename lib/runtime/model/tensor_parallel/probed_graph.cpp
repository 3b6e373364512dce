#include "runtime/model/tensor_parallel/probed_graph.hpp"

#include <torch/csrc/jit/ir/constants.h>
#include <torch/csrc/jit/runtime/interpreter.h>

#include <map>
#include <sstream>
#include <string_view>
#include <unordered_map>
#include <utility>

#include "base/format.hpp"
#include "runtime/model/graph/walk.hpp"

namespace dslaunch::runtime::model::tensor_parallel {
namespace {

using torch::jit::Graph;
using torch::jit::Node;
using torch::jit::Value;

// An input of an operator that says how much is dropped, or whether.
struct DropoutInput {
  std::string_view name;
  size_t input;
  bool is_flag;
};
constexpr DropoutInput kDropoutInputs[] = {
    {"aten::dropout", 2, true},
    {"aten::dropout_", 2, true},
    {"aten::feature_dropout", 2, true},
    {"aten::native_dropout", 2, true},
    {"dslaunch::dropout_of_slice", 2, true},
    {"aten::scaled_dot_product_attention", 4, false},
    {"dslaunch::attention_of_slice", 4, false},
};

Value* insert_constant(Node* before, const c10::IValue& value) {
  const torch::jit::WithInsertPoint there(before);
  return before->owningGraph()->insertConstant(value);
}

void move_constant(Node* node, at::Device device) {
  const auto value = torch::jit::toIValue(node->output());
  if (!value) return;
  if (value->isDevice() && value->toDevice() != device) {
    node->output()->replaceAllUsesWith(insert_constant(node, device));
  } else if (value->isTensor() && value->toTensor().defined() && value->toTensor().dim() > 0 &&
             value->toTensor().device() != device) {
    node->output()->replaceAllUsesWith(insert_constant(node, value->toTensor().to(device)));
  }
}

// All of a graph but its names, and the classes of its modules.
class StructureText {
 public:
  explicit StructureText(const Graph& graph) {
    for (const Value* input : graph.inputs()) number(input);
    write(graph.block());
  }
  std::string take() { return std::move(text_); }

 private:
  void write(const torch::jit::Block* block) {
    for (const Node* node : block->nodes()) {
      text_ += node->kind().toQualString();
      if (node->kind() == c10::prim::Constant) {
        write(node->output());
      } else {
        for (const Value* input : node->inputs()) text_ += fmt::format(" {}", number(input));
      }
      for (const Value* output : node->outputs()) text_ += fmt::format(" ={}", number(output));
      text_ += '\n';
      for (const auto* inner : node->blocks()) {
        text_ += "{";
        for (const Value* input : inner->inputs()) text_ += fmt::format(" ={}", number(input));
        write(inner);
        text_ += "}\n";
      }
    }
    for (const Value* output : block->outputs()) text_ += fmt::format(" {}", number(output));
  }

  void write(const Value* constant) {
    const auto value = torch::jit::toIValue(constant);
    std::ostringstream out;
    out << *constant->type();
    if (value && value->isTensor() && value->toTensor().defined()) {
      const at::Tensor tensor = value->toTensor();
      out << tensor.sizes() << tensor.scalar_type();
      if (tensor.dim() == 0 && tensor.is_cpu()) out << tensor.item();
    } else if (value) {
      out << *value;
    }
    text_ += ' ' + out.str();
  }

  size_t number(const Value* value) { return numbers_.try_emplace(value, numbers_.size()).first->second; }

  std::unordered_map<const Value*, size_t> numbers_;
  std::string text_;
};

class Conversion {
 public:
  Conversion(std::shared_ptr<Graph> graph, const torch::jit::Module& module) : module_(module) {
    out_.num_arguments = graph->inputs().size() - 1;
    out_.graph = std::move(graph);
  }

  Result<ProbedGraph> run() {
    Graph& graph = *out_.graph;
    std::vector<Node*> reads, calls;
    graph::for_each_node(graph.block(), [&](Node* node) {
      if (node->kind() == c10::prim::GetAttr) reads.push_back(node);
      if (node->kind() == c10::prim::CallMethod) calls.push_back(node);
      refuse(node);
    });
    for (Node* read : reads) lift(read);
    for (Node* call : calls) cut(call);
    graph::for_each_node(graph.block(), [&](Node* node) { draw_nothing(node); });
    if (!obstacle_.empty()) return Failure{std::move(obstacle_)};
    for (auto read = reads.rbegin(); read != reads.rend(); ++read) {
      if (!(*read)->hasUses()) (*read)->destroy();
    }
    if (!graph.inputs()[0]->hasUses()) out_.structure = StructureText(graph).take();
    return std::move(out_);
  }

 private:
  void refuse(const Node* node) {
    const auto kind = node->kind();
    if (kind == c10::prim::SetAttr) obstacle_ = fmt::format("it sets an attribute, '{}'", node->s(c10::attr::name));
    if (kind == c10::prim::CallFunction) obstacle_ = "it calls a function";
    if (kind == c10::prim::CallMethod && node->owningBlock() != out_.graph->block()) {
      obstacle_ = "it calls a unit in a branch or loop";
    }
  }

  // The value that a chain of reads from self leads to, with its place.
  struct Found {
    c10::intrusive_ptr<c10::ivalue::Object> owner;
    std::string path;
    c10::IValue value;
  };
  Found find(const Value* value) const {
    const Node* node = value->node();
    if (value == out_.graph->inputs()[0]) return {{}, "", module_._ivalue()};
    if (node->kind() != c10::prim::GetAttr) return {};
    const Found holder = find(node->input(0));
    if (!holder.value.isObject()) return {};
    const auto owner = holder.value.toObject();
    const std::string& name = node->s(c10::attr::name);
    if (!owner->type()->hasAttribute(name)) return {};
    return {owner, holder.path.empty() ? name : holder.path + "." + name, owner->getAttr(name)};
  }

  void lift(Node* read) {
    const Found found = find(read->output());
    if (found.value.isTensorList()) obstacle_ = fmt::format("a list holds its tensors, '{}'", found.path);
    if (!found.value.isTensor() || !found.value.toTensor().defined()) return lift_number(read, found.value);
    const SlotKey slot{found.owner.get(), found.owner->type()->getAttributeSlot(read->s(c10::attr::name))};
    auto [input, is_new] = inputs_.try_emplace(slot, nullptr);
    if (is_new) {
      input->second = out_.graph->addInput()->setType(c10::TensorType::get());
      out_.attributes.push_back({slot, found.path, found.value.toTensor()});
    }
    read->output()->replaceAllUsesWith(input->second);
  }

  void lift_number(Node* read, const c10::IValue& value) {
    const bool is_number = value.isBool() || value.isInt() || value.isDouble() || value.isNone() || value.isString();
    if (is_number) read->output()->replaceAllUsesWith(insert_constant(read, value));
  }

  void cut(Node* call) {
    Value* result = out_.graph->addInput()->copyMetadata(call->output());
    for (size_t i = 1; i < call->inputs().size(); ++i) out_.graph->registerOutput(call->input(i));
    call->output()->replaceAllUsesWith(result);
    call->destroy();
    out_.num_calls += 1;
  }

  void draw_nothing(Node* node) {
    const std::string_view name = node->kind().toQualString();
    for (const auto& dropout : kDropoutInputs) {
      if (name != dropout.name) continue;
      node->replaceInput(dropout.input, insert_constant(node, dropout.is_flag ? c10::IValue(false) : c10::IValue(0.0)));
      return;
    }
    if (node->kind().is_aten() && node->isNondeterministic()) obstacle_ = fmt::format("{} draws random numbers", name);
  }

  const torch::jit::Module& module_;
  ProbedGraph out_;
  std::map<SlotKey, Value*> inputs_;
  std::string obstacle_;
};

}  // namespace

std::vector<c10::IValue> ProbedGraph::run(torch::jit::Stack inputs, at::Device device) const {
  graph::for_each_node(graph->block(), [&](Node* node) {
    if (node->kind() == c10::prim::Constant) move_constant(node, device);
  });
  const torch::jit::Code code(graph, "probe");
  torch::jit::InterpreterState(code).run(inputs);
  return inputs;
}

Result<ProbedGraph> to_probed_graph(const Graph& flat, const torch::jit::Module& module) {
  return Conversion(const_cast<Graph&>(flat).copy(), module).run();
}

}  // namespace dslaunch::runtime::model::tensor_parallel
