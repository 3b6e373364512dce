#include "runtime/model/recomputation/recomputation.hpp"

#include <ATen/ATen.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/functions/utils.h>

#include <algorithm>
#include <unordered_map>
#include <utility>

#include "runtime/model/recomputation/recompute_backward.hpp"
#include "runtime/model/recomputation/recomputed_call.hpp"
#include "runtime/model/torchscript/units/bound_unit.hpp"
#include "runtime/model/torchscript/units/gather_node.hpp"

namespace dslaunch::runtime::model::recomputation {
namespace {

// The first forward: runs without history, saves what the recomputation needs, gives its outputs a history of one node.
class RecomputeForward {
 public:
  RecomputeForward(std::shared_ptr<SavedCall> call, const torch::jit::Stack& arguments, InputStore& store,
                   std::shared_ptr<PassTimes> times, LastCall& last)
      : call_(std::move(call)),
        store_(store),
        last_(last),
        node_(std::make_shared<RecomputeNode>(std::move(times))),
        given_(units::tensors_in_all(arguments)),
        external_(call_->unit.external_values()) {
    call_->arguments = map_tensors(arguments, [](const at::Tensor&) { return placeholder(); });
    passed_ = call_->recomputed.copies_arguments
                  ? map_tensors(arguments, [](const at::Tensor& t) { return t.detach().clone(); })
                  : arguments;
  }

  c10::IValue run() {
    collect_edges();
    const auto passed = units::tensors_in_all(passed_);
    std::vector<int64_t> versions;
    for (const auto& tensor : passed) versions.push_back(static_cast<int64_t>(tensor._version()));
    c10::IValue result = run_without_history();
    std::vector<bool> is_changed;
    for (size_t i = 0; i < passed.size(); ++i) {
      is_changed.push_back(static_cast<int64_t>(passed[i]._version()) != versions[i]);
      if (is_changed.back() && !call_->recomputed.copies_arguments) {
        refuse(*call_, "it changes an argument in place where its graph does not show it");
      }
    }
    store_inputs(is_changed);
    apply_changes(passed, is_changed);
    result = with_history(result, passed);
    last_.call = call_;
    node_->set_call(std::move(call_));
    return result;
  }

 private:
  // Stands in for a tensor that was removed; defined, so that it is visited.
  static at::Tensor placeholder() {
    static const at::Tensor kEmpty = at::empty({0});
    return kEmpty;
  }

  void collect_edges() {
    torch::autograd::edge_list edges;
    for (const auto* tensors : {&given_, &external_}) {
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
    units::UnitParametersScope scope(call_->parameters, unit, UnitCall::kTraining);
    UnitValues& own = scope.values();
    // Some operators compute differently with a weight that does not require a gradient (matmul may or may not fold
    // dims): the results must be bitwise those of a call with history.
    for (auto& parameter : own.parameters) parameter = parameter.detach().set_requires_grad(true);
    scope.set();
    c10::IValue result = call_->body(passed_);
    // Clones outputs that view memory that does not stay (parameters, state) or is not theirs (arguments). Not integers
    // of the state, which get no history: a trace continues to count in a BatchNorm counter that a call returned.
    std::vector<at::Tensor> others = units::tensors_in_all(passed_), state;
    for (const auto* more : {&own.parameters, &own.frozen, &external_})
      others.insert(others.end(), more->begin(), more->end());
    for (const auto& location : call_->recomputed.state) {
      const auto held = units::tensors_in(location.object->getSlot(location.slot));
      state.insert(state.end(), held.begin(), held.end());
    }
    const auto passed = units::tensors_in_all(passed_);
    result = map_tensors(result, [&](const at::Tensor& tensor) {
      const bool is_argument =
          std::any_of(passed.begin(), passed.end(), [&](const auto& t) { return t.is_same(tensor); });
      const bool is_external_view = units::shares_storage({tensor}, others) ||
                                    (is_differentiable(tensor) && units::shares_storage({tensor}, state));
      return !is_argument && is_external_view ? tensor.clone() : tensor;
    });
    scope.release({});
    return result;
  }

  // The call before it in its segment, or null.
  std::shared_ptr<SavedCall> call_before() const {
    auto before = last_.call.lock();
    if (before == nullptr || before->recomputed.segment != call_->recomputed.segment) return nullptr;
    return before->recomputed.position < call_->recomputed.position ? before : nullptr;  // each unit once
  }

  void store_inputs(const std::vector<bool>& is_changed) {
    const auto before = call_before();
    for (size_t i = 0; i < call_->inputs.size(); ++i) {
      auto& input = call_->inputs[i];
      const bool is_argument = i < given_.size();
      at::Tensor tensor = is_argument ? given_[i] : external_[i - given_.size()];
      if (before != nullptr) input.produced_output = last_.find(tensor);
      if (input.produced_output != kNoOutput) {
        input.producer = before;
        continue;
      }
      if (is_argument && is_changed[i]) tensor = tensor.detach().clone();  // the caller's tensor will change
      // Parameters may be gathered again before backward, which does not count as a change.
      const bool is_parameter = !is_argument || units::is_gathered(tensor);
      if (is_parameter) tensor = tensor.variable_data();
      input.stored = store_.save(tensor, !is_parameter && input.requires_grad);
    }
  }

  // Applies the in-place changes that the pass made in its copies of the arguments to the arguments.
  void apply_changes(const std::vector<at::Tensor>& passed, const std::vector<bool>& is_changed) {
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
    std::vector<at::Tensor> new_outputs;
    last_.outputs.clear();
    for (size_t i = 0; i < passed.size(); ++i) known[passed[i].unsafeGetTensorImpl()] = {given_[i], kNoOutput};
    const c10::IValue output_value = map_tensors(result, [&](const at::Tensor& tensor) {
      auto [entry, is_new] = known.try_emplace(tensor.unsafeGetTensorImpl(), tensor, kNoOutput);
      auto& [out, output] = entry->second;
      if (is_new && is_differentiable(tensor)) {
        out = tensor.variable_data();
        output = add_output(out);
        new_outputs.push_back(out);
        last_.outputs.emplace_back(out, output);
      }
      call_->outputs.push_back(output);
      return out;
    });
    record_overlapping(new_outputs);
    return output_value;
  }

  void record_overlapping(const std::vector<at::Tensor>& outputs) {
    for (const auto& one : outputs) {
      const bool overlaps = std::any_of(outputs.begin(), outputs.end(), [&](const at::Tensor& other) {
        return !other.is_same(one) && units::shares_storage({one}, {other}) && may_overlap(one, other);
      });
      const auto& version = one.unsafeGetTensorImpl()->version_counter();
      if (overlaps) call_->overlapping.emplace_back(version, version.current_version());
    }
  }

  int64_t add_output(at::Tensor& tensor) {
    torch::autograd::set_history(tensor, node_);
    call_->output_sizes.push_back(tensor.sizes().vec());
    return static_cast<int64_t>(call_->output_sizes.size()) - 1;
  }

  std::shared_ptr<SavedCall> call_;
  InputStore& store_;
  LastCall& last_;
  std::shared_ptr<RecomputeNode> node_;
  std::vector<at::Tensor> given_, external_;
  torch::jit::Stack passed_;  // inputs of the graph: the arguments, or copies
};

}  // namespace

Recomputation::Recomputation(RecomputationOptions options, InputRanks ranks)
    : options_(options),
      store_(std::make_shared<InputStore>(options.cpu_checkpointing, options.contiguous_memory,
                                          options.partition_activations ? std::move(ranks) : InputRanks())),
      times_(std::make_shared<PassTimes>(options.device, options.synchronize, options.profile)),
      last_(std::make_unique<LastCall>()) {}

Recomputation::~Recomputation() = default;

c10::IValue Recomputation::call(const units::BoundUnit& unit, const RecomputedUnit& recomputed,
                                UnitParameters& parameters, const torch::jit::Stack& arguments, UnitBody body) {
  auto timer = times_->time_forward();
  auto call = std::make_shared<SavedCall>(unit, recomputed, parameters, std::move(body), options_.device);
  return RecomputeForward(std::move(call), arguments, *store_, times_, *last_).run();
}

std::string Recomputation::take_profile() {
  return times_->take_line();
}

}  // namespace dslaunch::runtime::model::recomputation
