#include "runtime/model/stages/layer_probe.hpp"

#include <ATen/ATen.h>
#include <ATen/record_function.h>
#include <torch/csrc/jit/api/function_impl.h>
#include <torch/csrc/jit/runtime/custom_operator.h>
#include <torch/csrc/jit/runtime/graph_executor.h>

#include <algorithm>
#include <chrono>
#include <optional>
#include <unordered_map>
#include <unordered_set>
#include <utility>

#include "base/scope_exit.hpp"
#include "runtime/device/random_state.hpp"
#include "runtime/model/analysis/capture_obstacles.hpp"
#include "runtime/model/operators/operator_flops.hpp"
#include "runtime/model/rewrites/autocast_regions.hpp"
#include "runtime/model/torchscript/file/script_error.hpp"
#include "runtime/telemetry/operator_scopes.hpp"
#include "runtime/telemetry/time_mark.hpp"

namespace dslaunch::runtime::model::stages {
namespace {

using torch::jit::Graph;
using torch::jit::Node;
using torch::jit::Stack;
using torch::jit::Value;

// The first run also allocates memory and loads kernels. Further runs are measured within this time, and the shortest
// times of each layer count.
constexpr std::chrono::seconds kMaxTime(3);
constexpr int kMaxRuns = 6;

at::ScalarType run_dtype(at::ScalarType own, at::ScalarType compute_dtype) {
  return at::isFloatingType(own) ? compute_dtype : own;
}

// Replaces all tensors that a model holds; the destructor puts them back.
class TensorsReplaced {
 public:
  TensorsReplaced(const torch::jit::Module& model, const LayerProbe& probe) : probe_(probe) {
    find(model);
    shared_ =
        at::zeros({std::max<int64_t>(largest_bytes_, 1)}, at::TensorOptions().dtype(at::kByte).device(probe.device));
    std::vector<at::Tensor> replacements;
    for (const auto& held : held_) replacements.push_back(replacement(held));
    for (size_t i = 0; i < held_.size(); ++i) held_[i].location.set(replacements[i]);
  }
  ~TensorsReplaced() {
    for (const auto& held : held_) held.location.set(held.tensor);
  }
  TensorsReplaced(const TensorsReplaced&) = delete;
  TensorsReplaced& operator=(const TensorsReplaced&) = delete;

 private:
  struct Held {
    ParameterLocation location;
    at::Tensor tensor;
    bool is_parameter;
  };

  void find(const torch::jit::Module& model) {
    for (const auto& module : model.modules()) {
      const auto object = module._ivalue();
      for (size_t slot = 0; slot < object->type()->numAttributes(); ++slot) {
        for_each_value(object, slot, [&](const ParameterLocation& location, const c10::IValue& value) {
          if (!value.isTensor() || !value.toTensor().defined()) return;
          const at::Tensor& tensor = value.toTensor();
          // Lists of parameters hold those of the slots again.
          const bool is_parameter = object->type()->is_parameter(slot) || tensor.requires_grad();
          held_.push_back({location, tensor, is_parameter});
          if (is_parameter) largest_bytes_ = std::max(largest_bytes_, bytes_of(tensor));
        });
      }
    }
  }
  int64_t bytes_of(const at::Tensor& tensor) const {
    const auto dtype = run_dtype(tensor.scalar_type(), probe_.compute_dtype);
    return tensor.numel() * static_cast<int64_t>(c10::elementSize(dtype));
  }
  at::Tensor replacement(const Held& held) const {
    const at::NoGradGuard no_grad;
    const auto dtype = run_dtype(held.tensor.scalar_type(), probe_.compute_dtype);
    if (!held.is_parameter) return held.tensor.detach().to(probe_.device, dtype, /*non_blocking=*/false, /*copy=*/true);
    return shared_.narrow(0, 0, bytes_of(held.tensor)).view(dtype).view(held.tensor.sizes());
  }

  const LayerProbe& probe_;
  std::vector<Held> held_;
  int64_t largest_bytes_ = 0;
  at::Tensor shared_;
};

// What nodes between the layers and operators report, on this thread.
class Recorder {
 public:
  Recorder(size_t num_layers, size_t num_values, at::Device device) : device_(device) {
    out_.flops.resize(num_layers);
    out_.nanoseconds.resize(num_layers);
    out_.carried_bytes.resize(num_values);
    active() = this;
    handle_ = at::addThreadLocalCallback(at::RecordFunctionCallback(begin, end)
                                             .needsInputs(true)
                                             .scopes(std::unordered_set<at::RecordScope>{at::RecordScope::FUNCTION}));
  }
  ~Recorder() {
    at::removeCallback(handle_);
    active() = nullptr;
  }
  Recorder(const Recorder&) = delete;
  Recorder& operator=(const Recorder&) = delete;

  static void enter_layer(Stack& stack) {
    const auto layer = static_cast<size_t>(torch::jit::pop(stack).toInt());
    if (active() == nullptr) return;
    active()->layer_ = layer;
    active()->marks_.push_back(mark_time(active()->device_));
  }
  static void note_bytes(Stack& stack) {
    const auto index = static_cast<size_t>(torch::jit::pop(stack).toInt());
    const auto value = torch::jit::pop(stack);
    if (active() != nullptr) active()->out_.carried_bytes.at(index) = bytes_in(value);
  }
  LayerMeasurement take() {
    marks_.push_back(mark_time(device_));
    for (size_t i = 0; i + 1 < marks_.size(); ++i) {
      out_.nanoseconds.at(i) = static_cast<int64_t>(milliseconds_between(marks_[i], marks_[i + 1]) * 1e6);
    }
    return std::move(out_);
  }

 private:
  struct Costed : at::ObserverContext {};

  static Recorder*& active() {
    static thread_local Recorder* active = nullptr;
    return active;
  }
  static int64_t bytes_in(const c10::IValue& value) {
    if (value.isTensor()) return value.toTensor().defined() ? static_cast<int64_t>(value.toTensor().nbytes()) : 0;
    int64_t sum = 0;
    if (value.isTuple()) {
      for (const auto& element : value.toTupleRef().elements()) sum += bytes_in(element);
    }
    return sum;
  }
  static std::unique_ptr<at::ObserverContext> begin(const at::RecordFunction& call) {
    return active() == nullptr ? nullptr : active()->count(call);
  }
  static void end(const at::RecordFunction&, at::ObserverContext* context) {
    if (context != nullptr && active() != nullptr) active()->open_costed_ -= 1;
  }
  std::unique_ptr<at::ObserverContext> count(const at::RecordFunction& call) {
    if (open_costed_ == 0) {
      const auto cost = operators::operator_cost(call.name(), own_arguments(call));
      if (!cost) return nullptr;
      out_.flops.at(layer_) += cost->flops;
    }
    open_costed_ += 1;
    return std::make_unique<Costed>();
  }

  const at::Device device_;
  LayerMeasurement out_;
  std::vector<TimeMark> marks_;  // where layers begin
  size_t layer_ = 0;
  int open_costed_ = 0;  // operators with a formula that are running: their inner calls are counted with them
  at::CallbackHandle handle_ = 0;
};

constexpr char kEnterLayer[] = "dslaunch::enter_layer";
constexpr char kNoteBytes[] = "dslaunch::note_bytes";
const torch::jit::RegisterOperators kRegistration(
    {torch::jit::Operator("dslaunch::enter_layer(int layer) -> ()", Recorder::enter_layer,
                          c10::AliasAnalysisKind::CONSERVATIVE),
     torch::jit::Operator("dslaunch::note_bytes(Any value, int i) -> ()", Recorder::note_bytes,
                          c10::AliasAnalysisKind::CONSERVATIVE)});

// A copy of the flattened forward that reports, with all calls inlined.
class ProbeGraph {
 public:
  ProbeGraph(const FlatForward& flat, const LayerProbe& probe) : flat_(flat), probe_(probe) {
    for (size_t i = 0; i < probe.values.size(); ++i) index_.emplace(probe.values[i], i);
  }

  std::shared_ptr<Graph> build() {
    for (Value* input : flat_.graph->inputs()) copies_[input] = graph_->addInput()->copyMetadata(input);
    for (Value* input : flat_.graph->inputs()) note(input);
    size_t layer = 0;
    for (size_t i = 0; i < flat_.nodes.size(); ++i) {
      for (; layer < probe_.layer_begins.size() && probe_.layer_begins[layer] == i; ++layer) {
        insert(kEnterLayer, {graph_->insertConstant(static_cast<int64_t>(layer))});
      }
      Node* copy = graph_->insertNode(graph_->createClone(flat_.nodes[i], [&](Value* v) { return copies_.at(v); }));
      for (size_t j = 0; j < copy->outputs().size(); ++j) copies_[flat_.nodes[i]->output(j)] = copy->output(j);
      for (Value* output : flat_.nodes[i]->outputs()) note(output);
    }
    std::vector<Value*> results;
    for (Value* output : flat_.graph->outputs()) results.push_back(copies_.at(output));
    graph_->registerOutput(graph_->insertNode(graph_->createTuple(results))->output());
    graph::ObjectOfValue objects{{graph_->inputs()[0], flat_.module._ivalue()}};
    graph::inline_calls(*graph_, objects);
    return graph_;
  }

 private:
  void note(Value* value) {
    const auto found = index_.find(value);
    if (found == index_.end()) return;
    insert(kNoteBytes, {copies_.at(value), graph_->insertConstant(static_cast<int64_t>(found->second))});
  }
  void insert(const char* kind, at::ArrayRef<Value*> inputs) {
    graph_->insertNode(graph_->create(c10::Symbol::fromQualString(kind), inputs, 0));
  }

  const FlatForward& flat_;
  const LayerProbe& probe_;
  const std::shared_ptr<Graph> graph_ = std::make_shared<Graph>();
  std::unordered_map<Value*, Value*> copies_;
  std::unordered_map<const Value*, size_t> index_;
};

Result<Stack> arguments_for(const FlatForward& flat, const LayerProbe& probe) {
  Stack out{flat.module._ivalue()};
  for (const auto& input : probe.inputs) {
    const auto dtype = run_dtype(input.dtype, probe.compute_dtype);
    out.emplace_back(at::zeros(input.sizes, at::TensorOptions().dtype(dtype).device(probe.device)));
  }
  const auto& arguments = flat.module.get_method("forward").function().getSchema().arguments();
  for (size_t i = out.size(); i < arguments.size(); ++i) {
    if (!arguments[i].default_value()) return Failure{std::string("an example of every input is needed")};
    out.push_back(*arguments[i].default_value());
  }
  return out;
}

Result<LayerMeasurement> run(const FlatForward& flat, const LayerProbe& probe) {
  const auto arguments = arguments_for(flat, probe);
  if (!arguments.ok()) return Failure{arguments.error()};
  torch::jit::GraphFunction function(c10::QualifiedName("dslaunch.layer_probe"), ProbeGraph(flat, probe).build(),
                                     nullptr);
  function._set_ignore_amp(true);
  const at::Tensor random = device::save_random_state(probe.device);
  const ScopeExit restore([&] { device::restore_random_state(random, probe.device); });
  const at::NoGradGuard no_grad;
  const torch::jit::GraphOptimizerEnabledGuard plain(false);
  const rewrites::AutocastRegionsScope regions;
  const TensorsReplaced replaced(flat.module, probe);
  const auto once = [&] {
    Recorder recorder(probe.layer_begins.size(), probe.values.size(), probe.device);
    Stack stack = *arguments;
    function.run(stack);
    return recorder.take();
  };
  const auto end = std::chrono::steady_clock::now() + kMaxTime;
  auto out = once();
  for (int i = 1; i < kMaxRuns && std::chrono::steady_clock::now() < end; ++i) {
    const auto times = once().nanoseconds;
    for (size_t layer = 0; layer < times.size(); ++layer) {
      out.nanoseconds[layer] = std::min(out.nanoseconds[layer], times[layer]);
    }
  }
  return out;
}

}  // namespace

Result<LayerMeasurement> probe_layers(const FlatForward& flat, const LayerProbe& probe) {
  // What forward changes beside tensors could not be put back.
  if (const auto changes = analysis::check_capturable(flat.module); !changes.ok()) return Failure{changes.error()};
  try {
    return run(flat, probe);
  } catch (const std::exception& error) {
    return Failure{file::cause_of(error)};
  }
}

}  // namespace dslaunch::runtime::model::stages
