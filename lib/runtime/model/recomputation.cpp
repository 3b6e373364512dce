#include "runtime/model/recomputation.hpp"

#include <ATen/ATen.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/functions/utils.h>

#include <algorithm>
#include <chrono>
#include <mutex>
#include <unordered_map>
#include <utility>

#include "base/error.hpp"
#include "base/format.hpp"
#include "runtime/model/call_surroundings.hpp"
#include "runtime/model/gather_node.hpp"
#include "runtime/model/input_store.hpp"

namespace dslaunch::runtime {
namespace {

using torch::autograd::variable_list;
using Clock = std::chrono::steady_clock;

bool is_differentiable(const at::Tensor& tensor) {
  return tensor.defined() && torch::autograd::isDifferentiableType(tensor.scalar_type());
}

// The same value with every defined tensor replaced; tuples, lists and dicts are made anew, objects stay.
c10::IValue map_tensors(const c10::IValue& value, const std::function<at::Tensor(const at::Tensor&)>& change) {
  if (value.isTensor()) return value.toTensor().defined() ? change(value.toTensor()) : value.toTensor();
  if (value.isTuple()) {
    const auto tuple = value.toTuple();
    std::vector<c10::IValue> elements;
    for (const auto& element : tuple->elements()) elements.push_back(map_tensors(element, change));
    return c10::ivalue::Tuple::createNamed(std::move(elements), tuple->type<c10::TupleType>());
  }
  if (value.isList()) {
    const auto list = value.toList();
    c10::impl::GenericList out(list.elementType());
    for (size_t i = 0; i < list.size(); ++i) out.push_back(map_tensors(list.get(i), change));
    return out;
  }
  if (value.isGenericDict()) {
    const auto dict = value.toGenericDict();
    c10::impl::GenericDict out(dict.keyType(), dict.valueType());
    for (const auto& entry : dict) out.insert(entry.key(), map_tensors(entry.value(), change));
    return out;
  }
  return value;
}

torch::jit::Stack map_tensors(const torch::jit::Stack& values,
                              const std::function<at::Tensor(const at::Tensor&)>& change) {
  torch::jit::Stack out;
  for (const auto& value : values) out.push_back(map_tensors(value, change));
  return out;
}

// Parameters in the unit's places, for the time of one pass.
class ParametersInPlace {
 public:
  ParametersInPlace(const BoundUnit& unit, const std::vector<at::Tensor>& own) : unit_(unit) {
    unit_.set_parameters(own);
  }
  ~ParametersInPlace() { unit_.set_parameters({}); }
  ParametersInPlace(const ParametersInPlace&) = delete;
  ParametersInPlace& operator=(const ParametersInPlace&) = delete;

 private:
  const BoundUnit& unit_;
};

std::vector<at::Tensor> borrowed_values(const BoundUnit& unit) {
  std::vector<at::Tensor> out;
  for (const auto& places : unit.borrowed) out.push_back(places.front().get());
  return out;
}

class BorrowedInPlace {
 public:
  BorrowedInPlace(const BoundUnit& unit, const std::vector<at::Tensor>& values)
      : unit_(unit), before_(borrowed_values(unit)) {
    set(values);
  }
  ~BorrowedInPlace() { set(before_); }
  BorrowedInPlace(const BorrowedInPlace&) = delete;
  BorrowedInPlace& operator=(const BorrowedInPlace&) = delete;

 private:
  void set(const std::vector<at::Tensor>& values) {
    for (size_t i = 0; i < values.size(); ++i) {
      for (const auto& place : unit_.borrowed[i]) place.set(values[i]);
    }
  }
  const BoundUnit& unit_;
  std::vector<at::Tensor> before_;
};

constexpr int64_t kNoOutput = -1;  // of the node: passed through, or no gradient can flow to it

// All that the second pass of a call needs.
struct SavedCall {
  struct Input {
    std::unique_ptr<InputStore::Kept> kept;
    bool requires_grad = false;
  };

  SavedCall(const BoundUnit& unit_, const RecomputedUnit& recomputed_, UnitParameters& parameters_, UnitBody body_,
            at::Device device)
      : unit(unit_),
        recomputed(recomputed_),
        parameters(parameters_),
        body(std::move(body_)),
        surroundings(recomputed_.state, device) {}

  const BoundUnit& unit;
  const RecomputedUnit& recomputed;
  UnitParameters& parameters;
  UnitBody body;
  CallSurroundings surroundings;
  torch::jit::Stack arguments;           // with all tensors taken out
  std::vector<Input> inputs;             // those tensors, in order, then the borrowed parameters
  std::vector<int64_t> outputs;          // by tensor of the result: which output of the node it is
  std::vector<int64_t> changed_outputs;  // by tensor among the arguments: the same for one that was changed in place
  std::vector<std::vector<int64_t>> output_sizes;  // by output of the node
};

[[noreturn]] void refuse(const SavedCall& call, const std::string& what) {
  throw UserError(
      ExitCode::kBadInput,
      fmt::format("recomputation of unit '{}': {}. Set \"activation_checkpointing\": {{\"enabled\": false}}, "
                  "or name other modules in \"units\"",
                  call.recomputed.name, what));
}

}  // namespace

// Time of the passes since it was last asked.
class PassTimes {
 public:
  PassTimes(at::Device device, bool synchronize, bool profile)
      : device_(device), synchronize_(synchronize || profile), profile_(profile) {}

  class Timer {
   public:
    Timer(PassTimes& times, double& sum) : times_(times), sum_(sum) {
      times_.wait_for_device();
      if (times_.profile_) begin_ = Clock::now();
    }
    ~Timer() {
      times_.wait_for_device();
      if (times_.profile_) sum_ += std::chrono::duration<double, std::milli>(Clock::now() - begin_).count();
    }
    Timer(const Timer&) = delete;
    Timer& operator=(const Timer&) = delete;

   private:
    PassTimes& times_;
    double& sum_;
    Clock::time_point begin_;
  };

  Timer first_pass() { return Timer(*this, forward_ms_); }
  Timer second_pass() {
    num_calls_ += 1;
    return Timer(*this, backward_ms_);
  }

  std::string take_line() {
    if (!profile_) return {};
    auto line =
        fmt::format("recomputation: {} calls | forward {:.2f} ms | again and backward {:.2f} ms",
                    std::exchange(num_calls_, 0), std::exchange(forward_ms_, 0.0), std::exchange(backward_ms_, 0.0));
    return line;
  }

 private:
  void wait_for_device() const {
    if (!synchronize_ || device_.is_cpu()) return;
    c10::impl::VirtualGuardImpl guard(device_.type());
    guard.getStream(device_).synchronize();
  }

  at::Device device_;
  bool synchronize_, profile_;
  double forward_ms_ = 0, backward_ms_ = 0;
  int64_t num_calls_ = 0;
};

namespace {

// Runs a call again and differentiates it. Its inputs are the outputs of the first pass; its outputs the gradients of
// the inputs that ask for one.
class RecomputeNode : public torch::autograd::Node {
 public:
  explicit RecomputeNode(std::shared_ptr<PassTimes> times) : times_(std::move(times)) {}
  void set_call(std::unique_ptr<SavedCall> call) { call_ = std::move(call); }
  std::string name() const override { return "dslaunch::RecomputeNode"; }
  void release_variables() override { call_.reset(); }

  variable_list apply(variable_list&& gradients) override {
    std::lock_guard lock(mutex_);
    DSL_CHECK(call_ != nullptr, "a recomputed call passes through backward once");
    const auto call = std::move(call_);
    auto timer = times_->second_pass();
    const auto leaves = leaves_of(*call);
    auto in_backward =
        std::make_shared<CallInBackward>(CallInBackward{&call->parameters, call->unit.unit, true, false});
    differentiate(run_again(*call, leaves, in_backward), gradients);
    // A call whose results do not depend on its parameters has no gradients to give, and says so.
    const size_t num_own = call->unit.places.size();
    if (!in_backward->is_taken && num_own > 0) in_backward->take(std::vector<at::Tensor>(num_own));
    variable_list out;
    for (size_t i = 0; i < leaves.size(); ++i) {
      if (call->inputs[i].requires_grad) out.push_back(leaves[i].grad());
    }
    return out;
  }

 private:
  static std::vector<at::Tensor> leaves_of(const SavedCall& call) {
    std::vector<at::Tensor> out;
    for (const auto& input : call.inputs) {
      if (!input.kept->is_intact()) {
        refuse(call, "a tensor that it was given has been changed in place before backward");
      }
      out.push_back(input.kept->get().detach().set_requires_grad(input.requires_grad));
    }
    return out;
  }

  // The outputs of the node, this time with their history.
  static std::vector<at::Tensor> run_again(SavedCall& call, const std::vector<at::Tensor>& leaves,
                                           const std::shared_ptr<CallInBackward>& in_backward) {
    at::AutoGradMode with_gradients(true);
    CallSurroundings::Return as_then(call.surroundings);
    const size_t num_tensors = leaves.size() - call.unit.borrowed.size();
    std::vector<at::Tensor> given;
    for (size_t i = 0; i < num_tensors; ++i) {
      given.push_back(call.recomputed.copies_arguments ? leaves[i].clone() : leaves[i]);
    }
    size_t next = 0;
    torch::jit::Stack arguments = map_tensors(call.arguments, [&](const at::Tensor&) { return given.at(next++); });
    std::vector<at::Tensor> own;
    if (!call.unit.places.empty()) {
      own = call.parameters.acquire(call.unit.unit, UnitCall::kAgain);
      attach_gather_node(own, in_backward);
    }
    ParametersInPlace own_in_place(call.unit, own);
    BorrowedInPlace borrowed_in_place(call.unit,
                                      {leaves.begin() + static_cast<std::ptrdiff_t>(num_tensors), leaves.end()});
    return outputs_of_node(call, tensors_in(call.body(std::move(arguments))), given);
  }

  static std::vector<at::Tensor> outputs_of_node(const SavedCall& call, const std::vector<at::Tensor>& result,
                                                 const std::vector<at::Tensor>& given) {
    std::vector<at::Tensor> out(call.output_sizes.size());
    const auto put = [&](int64_t output, const at::Tensor& tensor) {
      if (output == kNoOutput) return;
      if (tensor.sizes() != call.output_sizes[output]) refuse(call, kDiffers);
      out[output] = tensor;
    };
    if (result.size() != call.outputs.size()) refuse(call, kDiffers);
    for (size_t i = 0; i < result.size(); ++i) put(call.outputs[i], result[i]);
    for (size_t i = 0; i < given.size(); ++i) put(call.changed_outputs[i], given[i]);
    return out;
  }

  static void differentiate(const std::vector<at::Tensor>& outputs, const variable_list& gradients) {
    variable_list roots, root_gradients;
    for (size_t i = 0; i < outputs.size(); ++i) {
      if (!gradients[i].defined() || !outputs[i].defined() || !outputs[i].requires_grad()) continue;
      roots.push_back(outputs[i]);
      root_gradients.push_back(gradients[i]);
    }
    if (!roots.empty()) torch::autograd::backward(roots, root_gradients);
  }

  static constexpr const char* kDiffers =
      "its second pass gave other outputs than its first; something outside it changed what it does";

  std::mutex mutex_;
  std::shared_ptr<PassTimes> times_;
  std::unique_ptr<SavedCall> call_;
};

// The first pass: runs without history, keeps what the second needs, gives its outputs a history of one node.
class FirstPass {
 public:
  FirstPass(std::unique_ptr<SavedCall> call, const torch::jit::Stack& arguments, InputStore& store,
            std::shared_ptr<PassTimes> times)
      : call_(std::move(call)),
        store_(store),
        node_(std::make_shared<RecomputeNode>(std::move(times))),
        given_(tensors_in_all(arguments)),
        borrowed_(borrowed_values(call_->unit)) {
    call_->arguments = map_tensors(arguments, [](const at::Tensor&) { return kTakenOut(); });
    passed_ = call_->recomputed.copies_arguments
                  ? map_tensors(arguments, [](const at::Tensor& t) { return t.detach().clone(); })
                  : arguments;
  }

  c10::IValue run() {
    collect_edges();
    const auto passed = tensors_in_all(passed_);
    std::vector<int64_t> versions;
    for (const auto& tensor : passed) versions.push_back(static_cast<int64_t>(tensor._version()));
    c10::IValue result = run_without_history();
    std::vector<bool> is_changed;
    for (size_t i = 0; i < passed.size(); ++i) {
      is_changed.push_back(static_cast<int64_t>(passed[i]._version()) != versions[i]);
      if (is_changed.back() && !call_->recomputed.copies_arguments) {
        refuse(*call_, "it changes a tensor that it was given, where its graph does not say so");
      }
    }
    keep_inputs(is_changed);
    hand_back_changes(passed, is_changed);
    result = with_history(result, passed);
    node_->set_call(std::move(call_));
    return result;
  }

 private:
  // A tensor that stands for one that was taken out; defined, so that it is visited.
  static at::Tensor kTakenOut() {
    static const at::Tensor kEmpty = at::empty({0});
    return kEmpty;
  }

  void collect_edges() {
    torch::autograd::edge_list edges;
    for (const auto* tensors : {&given_, &borrowed_}) {
      for (const auto& tensor : *tensors) {
        const bool wanted = is_differentiable(tensor) && tensor.requires_grad();
        call_->inputs.push_back({nullptr, wanted});
        if (wanted) edges.push_back(torch::autograd::impl::gradient_edge(tensor));
      }
    }
    node_->set_next_edges(std::move(edges));
  }

  c10::IValue run_without_history() {
    at::NoGradGuard no_grad;
    const auto& unit = call_->unit;
    std::vector<at::Tensor> own;
    if (!unit.places.empty()) own = call_->parameters.acquire(unit.unit, UnitCall::kTraining);
    struct Release {
      SavedCall& call;
      ~Release() {
        if (!call.unit.places.empty()) call.parameters.release(call.unit.unit);
      }
    } release{*call_};
    ParametersInPlace in_place(unit, own);
    c10::IValue result = call_->body(passed_);
    // Outputs that look into what does not stay (parameters, state) or is not theirs (arguments) become their own.
    std::vector<at::Tensor> others = tensors_in_all(passed_);
    for (const auto* more : {&own, &borrowed_}) others.insert(others.end(), more->begin(), more->end());
    for (const auto& place : call_->recomputed.state) {
      const auto held = tensors_in(place.object->getSlot(place.slot));
      others.insert(others.end(), held.begin(), held.end());
    }
    const auto passed = tensors_in_all(passed_);
    return map_tensors(result, [&](const at::Tensor& tensor) {
      const bool is_argument =
          std::any_of(passed.begin(), passed.end(), [&](const auto& t) { return t.is_same(tensor); });
      return !is_argument && shares_storage({tensor}, others) ? tensor.clone() : tensor;
    });
  }

  void keep_inputs(const std::vector<bool>& is_changed) {
    for (size_t i = 0; i < call_->inputs.size(); ++i) {
      auto& input = call_->inputs[i];
      const bool is_argument = i < given_.size();
      at::Tensor tensor = is_argument ? given_[i] : borrowed_[i - given_.size()];
      if (is_argument && is_changed[i]) tensor = tensor.detach().clone();  // the caller's will take on the new values
      // Parameters may be gathered again before backward, which is no change.
      const bool is_parameter = !is_argument || is_gathered(tensor);
      if (is_parameter) tensor = tensor.variable_data();
      input.kept = store_.keep(tensor, !is_parameter && input.requires_grad);
    }
  }

  // What the pass changed in place in its copies of the arguments becomes true of the arguments.
  void hand_back_changes(const std::vector<at::Tensor>& passed, const std::vector<bool>& is_changed) {
    for (size_t i = 0; i < given_.size(); ++i) {
      call_->changed_outputs.push_back(kNoOutput);
      if (!is_changed[i]) continue;
      at::Tensor changed = passed[i];
      if (is_differentiable(changed)) {
        changed = changed.variable_data();
        call_->changed_outputs.back() = add_output(changed);
      }
      given_[i].copy_(changed);
    }
  }

  c10::IValue with_history(const c10::IValue& result, const std::vector<at::Tensor>& passed) {
    std::unordered_map<const c10::TensorImpl*, std::pair<at::Tensor, int64_t>> known;
    for (size_t i = 0; i < passed.size(); ++i) known[passed[i].unsafeGetTensorImpl()] = {given_[i], kNoOutput};
    return map_tensors(result, [&](const at::Tensor& tensor) {
      auto [entry, is_new] = known.try_emplace(tensor.unsafeGetTensorImpl(), tensor, kNoOutput);
      auto& [out, output] = entry->second;
      if (is_new && is_differentiable(tensor)) {
        out = tensor.variable_data();
        output = add_output(out);
      }
      call_->outputs.push_back(output);
      return out;
    });
  }

  int64_t add_output(at::Tensor& tensor) {
    torch::autograd::set_history(tensor, node_);
    call_->output_sizes.push_back(tensor.sizes().vec());
    return static_cast<int64_t>(call_->output_sizes.size()) - 1;
  }

  std::unique_ptr<SavedCall> call_;
  InputStore& store_;
  std::shared_ptr<RecomputeNode> node_;
  std::vector<at::Tensor> given_, borrowed_;
  torch::jit::Stack passed_;  // what the graph gets: the arguments, or copies
};

}  // namespace

Recomputation::Recomputation(RecomputationOptions options)
    : options_(options),
      store_(std::make_shared<InputStore>(options.cpu_checkpointing, options.contiguous_memory)),
      times_(std::make_shared<PassTimes>(options.device, options.synchronize, options.profile)) {}

Recomputation::~Recomputation() = default;

c10::IValue Recomputation::call(const BoundUnit& unit, const RecomputedUnit& recomputed, UnitParameters& parameters,
                                const torch::jit::Stack& arguments, UnitBody body) {
  auto timer = times_->first_pass();
  auto call = std::make_unique<SavedCall>(unit, recomputed, parameters, std::move(body), options_.device);
  return FirstPass(std::move(call), arguments, *store_, times_).run();
}

std::string Recomputation::take_profile() {
  return times_->take_line();
}

}  // namespace dslaunch::runtime
