#include "runtime/model/stages/shape_run.hpp"

#include <ATen/ATen.h>
#include <ATen/record_function.h>
#include <torch/csrc/jit/api/function_impl.h>
#include <torch/csrc/jit/runtime/custom_operator.h>
#include <torch/csrc/jit/runtime/graph_executor.h>

#include <utility>

#include "runtime/model/analysis/capture_obstacles.hpp"
#include "runtime/model/rewrites/autocast_regions.hpp"
#include "runtime/model/script_error.hpp"
#include "runtime/telemetry/operator_flops.hpp"

namespace dslaunch::runtime::model::stages {
namespace {

using torch::jit::Graph;
using torch::jit::Node;
using torch::jit::Stack;
using torch::jit::Value;

at::Tensor without_storage(const at::Tensor& tensor, at::ScalarType compute_dtype) {
  const auto dtype = tensor.is_floating_point() ? compute_dtype : tensor.scalar_type();
  return at::empty_strided(tensor.sizes(), tensor.strides(), tensor.options().dtype(dtype).device(at::kMeta));
}

// Replaces all tensors that a model holds; the destructor puts them back.
class TensorsReplaced {
 public:
  TensorsReplaced(const torch::jit::Module& model, at::ScalarType compute_dtype) {
    for (const auto& module : model.modules()) {
      const auto object = module._ivalue();
      for (size_t slot = 0; slot < object->type()->numAttributes(); ++slot) {
        for_each_value(object, slot, [&](const ParameterLocation& location, const c10::IValue& value) {
          if (value.isTensor() && value.toTensor().defined()) replaced_.emplace_back(location, value.toTensor());
        });
      }
    }
    std::vector<at::Tensor> replacements;
    for (const auto& held : replaced_) replacements.push_back(without_storage(held.second, compute_dtype));
    for (size_t i = 0; i < replaced_.size(); ++i) replaced_[i].first.set(replacements[i]);
  }
  ~TensorsReplaced() {
    for (const auto& [location, tensor] : replaced_) location.set(tensor);
  }
  TensorsReplaced(const TensorsReplaced&) = delete;
  TensorsReplaced& operator=(const TensorsReplaced&) = delete;

 private:
  std::vector<std::pair<ParameterLocation, at::Tensor>> replaced_;
};

// Counts the operations of the part that is running, on this thread.
class FlopsByPart {
 public:
  explicit FlopsByPart(size_t num_parts) : flops_(num_parts) {
    active() = this;
    handle_ = at::addThreadLocalCallback(at::RecordFunctionCallback(begin, end).needsInputs(true).scopes(
        std::unordered_set<at::RecordScope>{at::RecordScope::FUNCTION}));
  }
  ~FlopsByPart() {
    at::removeCallback(handle_);
    active() = nullptr;
  }
  FlopsByPart(const FlopsByPart&) = delete;
  FlopsByPart& operator=(const FlopsByPart&) = delete;

  static void enter_part(Stack& stack) {
    const auto part = static_cast<size_t>(torch::jit::pop(stack).toInt());
    if (active() != nullptr) active()->part_ = part;
  }
  const std::vector<int64_t>& flops() const { return flops_; }

 private:
  struct Costed : at::ObserverContext {};

  static FlopsByPart*& active() {
    static thread_local FlopsByPart* active = nullptr;
    return active;
  }
  static std::unique_ptr<at::ObserverContext> begin(const at::RecordFunction& call) {
    return active() == nullptr ? nullptr : active()->count(call);
  }
  static void end(const at::RecordFunction&, at::ObserverContext* context) {
    if (context != nullptr && active() != nullptr) active()->open_costed_ -= 1;
  }
  std::unique_ptr<at::ObserverContext> count(const at::RecordFunction& call) {
    if (open_costed_ == 0) {
      // TorchScript's interpreter passes its whole stack; the last values are the operator's own arguments.
      const auto shown = call.inputs();
      const auto schema = call.operator_schema();
      const size_t own = schema ? schema->arguments().size() : shown.size();
      const auto cost = operator_cost(call.name(), own < shown.size() ? shown.slice(shown.size() - own) : shown);
      if (!cost) return nullptr;
      flops_.at(part_) += cost->flops;
    }
    open_costed_ += 1;
    return std::make_unique<Costed>();
  }

  std::vector<int64_t> flops_;
  size_t part_ = 0;
  int open_costed_ = 0;  // operators with a formula that are running: their inner calls are counted with them
  at::CallbackHandle handle_ = 0;
};

constexpr char kEnterPart[] = "dslaunch::enter_part";
const torch::jit::RegisterOperators kRegistration({torch::jit::Operator("dslaunch::enter_part(int part) -> ()",
                                                                        FlopsByPart::enter_part,
                                                                        c10::AliasAnalysisKind::CONSERVATIVE)});

// A copy of the flattened forward that returns `values`, with all calls inlined and everything on `meta`.
std::shared_ptr<Graph> shape_graph(const FlatForward& flat, const std::vector<Value*>& values,
                                   const std::vector<size_t>& part_begins, analysis::ObjectOfValue& objects) {
  auto graph = std::make_shared<Graph>();
  std::unordered_map<Value*, Value*> copies;
  for (Value* input : flat.graph->inputs()) copies[input] = graph->addInput()->copyMetadata(input);
  objects[graph->inputs()[0]] = flat.module._ivalue();
  size_t part = 0;
  for (size_t i = 0; i < flat.nodes.size(); ++i) {
    for (; part < part_begins.size() && part_begins[part] == i; ++part) {
      Value* number = graph->insertConstant(static_cast<int64_t>(part));
      graph->insertNode(graph->create(c10::Symbol::fromQualString(kEnterPart), {number}, 0));
    }
    Node* copy = graph->insertNode(graph->createClone(flat.nodes[i], [&](Value* v) { return copies.at(v); }));
    for (size_t j = 0; j < copy->outputs().size(); ++j) copies[flat.nodes[i]->output(j)] = copy->output(j);
  }
  std::vector<Value*> results;
  for (Value* value : values) results.push_back(copies.at(value));
  graph->registerOutput(graph->insertNode(graph->createTuple(results))->output());
  inline_all(*graph, objects);
  return graph;
}

void move_constants(torch::jit::Block* block) {
  for (Node* node : block->nodes()) {
    for (torch::jit::Block* inner : node->blocks()) move_constants(inner);
    if (node->kind() != c10::prim::Constant || !node->hasAttribute(c10::attr::value)) continue;
    if (node->output()->type()->kind() == c10::TypeKind::DeviceObjType) node->s_(c10::attr::value, "meta");
    // A 0-dim tensor stands for a number, and its value may be read.
    if (node->kindOf(c10::attr::value) == torch::jit::AttributeKind::t && node->t(c10::attr::value).dim() > 0) {
      node->t_(c10::attr::value, node->t(c10::attr::value).to(at::kMeta));
    }
  }
}

int64_t bytes_in(const c10::IValue& value) {
  if (value.isTensor()) return value.toTensor().defined() ? static_cast<int64_t>(value.toTensor().nbytes()) : 0;
  int64_t sum = 0;
  if (value.isTuple()) {
    for (const auto& element : value.toTupleRef().elements()) sum += bytes_in(element);
  }
  return sum;
}

}  // namespace

Result<ShapeRun> run_on_shapes(const FlatForward& flat, const std::vector<Value*>& values,
                               const std::vector<size_t>& part_begins, const std::vector<ExampleInput>& inputs,
                               at::ScalarType compute_dtype) {
  // What forward changes beside tensors could not be put back.
  if (const auto changes = analysis::check_capturable(flat.module); !changes.ok()) return Failure{changes.error()};
  try {
    analysis::ObjectOfValue objects;
    const auto graph = shape_graph(flat, values, part_begins, objects);
    move_constants(graph->block());
    torch::jit::GraphFunction function(c10::QualifiedName("dslaunch.shape_run"), graph, nullptr);
    function._set_ignore_amp(true);
    Stack stack{flat.module._ivalue()};
    for (const auto& input : inputs) {
      const auto dtype = at::isFloatingType(input.dtype) ? compute_dtype : input.dtype;
      stack.emplace_back(at::empty(input.sizes, at::TensorOptions().dtype(dtype).device(at::kMeta)));
    }
    // Arguments that are not given keep their defaults.
    const auto& arguments = flat.module.get_method("forward").function().getSchema().arguments();
    for (size_t i = stack.size(); i < arguments.size(); ++i) {
      if (!arguments[i].default_value()) return Failure{std::string("an example of each input is needed")};
      stack.push_back(*arguments[i].default_value());
    }
    const at::NoGradGuard no_grad;
    const torch::jit::GraphOptimizerEnabledGuard plain(false);
    const TensorsReplaced replaced(flat.module, compute_dtype);
    const rewrites::AutocastRegionsScope regions;
    const FlopsByPart counter(part_begins.size());
    function.run(stack);
    ShapeRun out;
    out.flops = counter.flops();
    const auto results = stack.back().toTuple();
    for (size_t i = 0; i < values.size(); ++i) out.bytes[values[i]] = bytes_in(results->elements()[i]);
    return out;
  } catch (const std::exception& error) {
    return Failure{cause_of(error)};
  }
}

}  // namespace dslaunch::runtime::model::stages
