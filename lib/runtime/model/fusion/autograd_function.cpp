#include "runtime/model/fusion/autograd_function.hpp"

#include <ATen/ATen.h>
#include <torch/csrc/autograd/custom_function.h>

#include <algorithm>
#include <utility>

#include "base/error.hpp"
#include "runtime/model/fusion/executor.hpp"
#include "runtime/model/torchscript/units/gather_node.hpp"
#include "runtime/model/torchscript/units/recomputed_tensor.hpp"

namespace dslaunch::runtime::model::fusion {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;
using From = BackwardSource::From;

bool is_on_gpu(const std::vector<at::Tensor>& tensors) {
  return std::all_of(tensors.begin(), tensors.end(), [](const at::Tensor& tensor) { return tensor.is_cuda(); });
}

size_t first_input_of(const Backward& backward, size_t output) {
  const auto found = std::find_if(backward.gradients.begin(), backward.gradients.end(),
                                  [&](const auto& gradient) { return gradient.output == output; });
  return found->input;
}

class RegionFunction : public torch::autograd::Function<RegionFunction> {
 public:
  static variable_list forward(AutogradContext* context, const c10::intrusive_ptr<RegionPlan>& plan,
                               at::TensorList inputs) {
    variable_list outputs = plan->run_forward(inputs.vec()), not_differentiable;
    context->set_materialize_grads(false);
    context->saved_data["plan"] = c10::IValue::make_capsule(plan);
    const auto& region = plan->forward();
    for (size_t i = 0; i < outputs.size(); ++i) {
      if (!at::isFloatingType(region.outputs[i].dtype)) not_differentiable.push_back(outputs[i]);
    }
    context->mark_non_differentiable(not_differentiable);
    variable_list saved;
    for (const auto& source : plan->kept(wanted(inputs), parameters(*plan, inputs)).sources) {
      saved.push_back(source.from == From::kInput ? inputs[source.index] : outputs[source.index]);
    }
    context->save_for_backward(saved);
    context->saved_data["wanted"] = to_list(wanted(inputs));
    context->saved_data["parameters"] = to_list(parameters(*plan, inputs));
    std::vector<std::vector<int64_t>> sizes;
    for (const auto& input : inputs) sizes.push_back(input.sizes().vec());
    context->saved_data["sizes"] = sizes;
    for (const size_t input : plan->passthrough()) outputs.push_back(inputs[input]);
    return outputs;
  }

  static variable_list backward(AutogradContext* context, const variable_list& upstream) {
    const auto plan = c10::static_intrusive_pointer_cast<RegionPlan>(context->saved_data["plan"].toCapsule());
    const auto wanted = from_list(context->saved_data["wanted"]);
    std::vector<bool> given;
    for (const auto& gradient : upstream) given.push_back(gradient.defined());
    auto& chosen = plan->backward(wanted, given);
    const bool is_followed = at::GradMode::is_enabled();  // second-order gradients are wanted
    const auto& backward = is_followed ? chosen.followed : chosen.backward;
    const auto& kept = plan->kept(wanted, from_list(context->saved_data["parameters"]));
    const auto sources = sources_of(backward.sources, kept, *context, upstream);
    variable_list out(wanted.size() + 1);  // the plan has none
    if (backward.region.outputs.empty()) return out;
    const auto gradients =
        is_followed ? run_reference(backward.region, sources, plan->leading()) : plan->run_backward(chosen, sources);
    const auto sizes = context->saved_data["sizes"].toList();
    for (const auto& [input, output] : backward.gradients) {
      const auto size = c10::IValue(sizes.get(input)).toIntVector();
      const bool is_summed = backward.region.outputs[output].rows == Rows::kSum;
      out[input + 1] = is_summed ? gradients[output].reshape(size) : at::sum_to(gradients[output], size);
    }
    return out;
  }

  // Before the backward. With history, if gradients are enabled.
  static at::Tensor recompute(AutogradContext& context, RegionPlan& plan, size_t output) {
    const auto& kept = plan.kept(from_list(context.saved_data["wanted"]), from_list(context.saved_data["parameters"]));
    auto& again = *kept.recomputations.at(output);
    const bool is_followed = at::GradMode::is_enabled();
    const auto& recomputation = is_followed ? again.followed : again.recomputation;
    const auto sources = sources_of(recomputation.sources, kept, context, {});
    if (is_followed) return run_reference(recomputation.region, sources, plan.leading())[0];
    return plan.run_recomputation(output, again, sources);
  }

  static std::vector<bool> wanted(at::TensorList inputs) {
    std::vector<bool> out;
    for (const auto& input : inputs) out.push_back(input.requires_grad());
    return out;
  }

  // Which inputs a recomputation may read beside what backward reads: nothing writes to parameters between forward and
  // backward.
  static std::vector<bool> parameters(const RegionPlan& plan, at::TensorList inputs) {
    std::vector<bool> out(inputs.size());
    if (!plan.offers()) return out;
    for (size_t i = 0; i < inputs.size(); ++i) out[i] = units::is_gathered(inputs[i]);
    return out;
  }

 private:
  static std::vector<int64_t> to_list(const std::vector<bool>& flags) { return {flags.begin(), flags.end()}; }
  static std::vector<bool> from_list(const c10::IValue& value) {
    const auto numbers = value.toIntVector();
    return {numbers.begin(), numbers.end()};
  }

  static std::vector<at::Tensor> sources_of(const std::vector<BackwardSource>& wanted, const RegionPlan::Kept& kept,
                                            AutogradContext& context, const variable_list& upstream) {
    const auto saved = context.get_saved_variables();
    std::vector<at::Tensor> out;
    for (const auto& source : wanted) {
      if (source.from == From::kGradient) {
        out.push_back(upstream[source.index]);
        continue;
      }
      const auto place = std::find(kept.sources.begin(), kept.sources.end(), source) - kept.sources.begin();
      out.push_back(saved.at(static_cast<size_t>(place)));
    }
    return out;
  }
};

}  // namespace

RegionPlan::RegionPlan(Region forward, std::vector<int64_t> leading, std::vector<Result> results,
                       std::vector<size_t> passthrough, std::vector<size_t> offered, const FusionServicesPtr& services)
    : derived_(std::make_shared<Derived>(std::move(forward), services)),
      leading_(std::move(leading)),
      results_(std::move(results)),
      passthrough_(std::move(passthrough)),
      offered_(std::move(offered)) {}

RegionPlan::RegionPlan(const RegionPlan& other, std::vector<int64_t> leading, std::vector<Result> results)
    : derived_(other.derived_),
      leading_(std::move(leading)),
      results_(std::move(results)),
      passthrough_(other.passthrough_),
      offered_(other.offered_) {}

RegionPlan::BackwardPlan& RegionPlan::backward(const std::vector<bool>& wanted, const std::vector<bool>& given) {
  auto key = wanted;
  key.insert(key.end(), given.begin(), given.end());
  const std::lock_guard lock(derived_->mutex);
  auto& plan = derived_->backward[key];
  if (plan == nullptr) {
    Region with_inputs = forward();  // those that are passed through
    for (const size_t input : passthrough_) {
      const auto is_input = [input](const Instruction& node) {
        return node.op == Op::kInput && node.index == static_cast<int64_t>(input);
      };
      const auto& nodes = with_inputs.nodes;
      const auto place = std::find_if(nodes.begin(), nodes.end(), is_input) - nodes.begin();
      with_inputs.outputs.push_back({static_cast<Id>(place), with_inputs.inputs[input].dtype});
    }
    auto derived = derive_backward(with_inputs, wanted, given);
    auto followed = derive_backward(with_inputs, wanted, given, History::kFollowed);
    Region region = derived.region;
    plan.reset(new BackwardPlan{std::move(derived), std::move(followed),
                                FusionExecutor(std::move(region), derived_->services)});
  }
  return *plan;
}

const RegionPlan::Kept& RegionPlan::kept(const std::vector<bool>& wanted, const std::vector<bool>& may_be_kept) {
  const auto& all = backward(wanted, std::vector<bool>(num_results(), true)).followed;
  auto key = wanted;
  key.insert(key.end(), may_be_kept.begin(), may_be_kept.end());
  const std::lock_guard lock(derived_->mutex);
  const auto [place, is_new] = derived_->kept.try_emplace(std::move(key));
  Kept& kept = place->second;
  if (!is_new) return kept;
  for (const auto& source : all.sources) {
    if (source.from != From::kGradient) kept.sources.push_back(source);
  }
  const auto of_backward = kept.sources;
  for (const size_t output : offered_) {
    auto recomputation = derive_recomputation(forward(), output, of_backward, may_be_kept);
    auto followed = derive_recomputation(forward(), output, of_backward, may_be_kept, History::kFollowed);
    if (!recomputation || !followed) continue;
    for (const auto& source : followed->sources) {
      const bool is_kept = std::find(kept.sources.begin(), kept.sources.end(), source) != kept.sources.end();
      if (!is_kept) kept.sources.push_back(source);
    }
    Region region = recomputation->region;
    kept.recomputations[output].reset(new RecomputationPlan{*std::move(recomputation), *std::move(followed),
                                                            FusionExecutor(std::move(region), derived_->services)});
  }
  return kept;
}

at::Tensor RegionPlan::empty_output(size_t output, const at::TensorOptions& options) const {
  const auto& [sizes, strides] = results_[output];
  return at::empty_strided(sizes, strides, options.dtype(forward().outputs[output].dtype).requires_grad(false));
}

std::vector<at::Tensor> RegionPlan::empty_outputs(const at::TensorOptions& options) const {
  std::vector<at::Tensor> out;
  for (size_t i = 0; i < results_.size(); ++i) out.push_back(empty_output(i, options));
  return out;
}

// As the inputs lie in memory, so that their own backwards read them in order.
std::vector<at::Tensor> RegionPlan::empty_gradients(const BackwardPlan& plan,
                                                    const std::vector<at::Tensor>& sources) const {
  const auto& region = plan.backward.region;
  std::vector<at::Tensor> out;
  for (size_t i = 0; i < region.outputs.size(); ++i) {
    const auto& output = region.outputs[i];
    auto sizes = output.rows == Rows::kSum ? std::vector<int64_t>() : leading_;
    sizes.push_back(region.node(output.value).width);
    at::Tensor like;
    for (size_t s = 0; s < sources.size(); ++s) {
      const auto& source = plan.backward.sources[s];
      const bool is_own = source.from == From::kInput && source.index == first_input_of(plan.backward, i);
      if (is_own || (!like.defined() && source.from == From::kGradient)) like = sources[s];
      if (is_own) break;
    }
    const bool is_dense = like.defined() && like.sizes() == at::IntArrayRef(sizes) &&
                          like.is_non_overlapping_and_dense() && like.stride(-1) == 1;
    const auto options = sources[0].options().dtype(output.dtype).requires_grad(false);
    out.push_back(is_dense ? at::empty_strided(sizes, like.strides(), options) : at::empty(sizes, options));
  }
  return out;
}

void RegionPlan::prepare(const std::vector<at::Tensor>& inputs, const std::vector<bool>& wanted,
                         const at::Tensor& like) {
  auto outputs = empty_outputs(inputs[0].options());
  derived_->forward.prepare(leading_, inputs, outputs, like);
  for (const size_t input : passthrough_) outputs.push_back(inputs[input]);
  auto& plan = backward(wanted, std::vector<bool>(outputs.size(), true));
  if (plan.backward.region.outputs.empty()) return;
  const auto tensors_of = [&](const std::vector<BackwardSource>& sources) {
    std::vector<at::Tensor> out;
    for (const auto& source : sources) {
      out.push_back(source.from == From::kInput ? inputs[source.index] : outputs[source.index]);
    }
    return out;
  };
  const auto sources = tensors_of(plan.backward.sources);
  plan.kernel.prepare(leading_, sources, empty_gradients(plan, sources), like);
  for (const auto& [output, again] : kept(wanted, std::vector<bool>(inputs.size(), true)).recomputations) {
    again->kernel.prepare(leading_, tensors_of(again->recomputation.sources), {outputs[output]}, like);
  }
}

std::vector<at::Tensor> RegionPlan::run_forward(const std::vector<at::Tensor>& inputs) {
  if (is_on_gpu(inputs)) {
    auto outputs = empty_outputs(inputs[0].options());
    if (derived_->forward.run(leading_, inputs, outputs)) return outputs;
  }
  const auto values = run_reference(forward(), inputs, leading_);
  auto outputs = empty_outputs(inputs[0].options());  // the reference may hand out an input, or shared columns
  for (size_t i = 0; i < outputs.size(); ++i) outputs[i].copy_(values[i]);
  return outputs;
}

std::vector<at::Tensor> RegionPlan::run_backward(BackwardPlan& plan, const std::vector<at::Tensor>& sources) const {
  if (is_on_gpu(sources)) {
    auto outputs = empty_gradients(plan, sources);
    if (plan.kernel.run(leading_, sources, outputs)) return outputs;
  }
  auto out = run_reference(plan.backward.region, sources, leading_);
  for (auto& gradient : out) gradient = gradient.contiguous();
  return out;
}

at::Tensor RegionPlan::run_recomputation(size_t output, RecomputationPlan& plan,
                                         const std::vector<at::Tensor>& sources) const {
  at::Tensor out = empty_output(output, sources[0].options());
  if (is_on_gpu(sources) && plan.kernel.run(leading_, sources, {out})) return out;
  return out.copy_(run_reference(plan.recomputation.region, sources, leading_)[0]);
}

namespace {

// Their readers need not keep those.
void offer_recomputations(const c10::intrusive_ptr<RegionPlan>& plan, const std::vector<at::Tensor>& inputs,
                          const variable_list& results) {
  const auto& kept = plan->kept(RegionFunction::wanted(inputs), RegionFunction::parameters(*plan, inputs));
  for (const auto& [output, again] : kept.recomputations) {
    auto* node = dynamic_cast<torch::autograd::CppNode<RegionFunction>*>(results[output].grad_fn().get());
    DSL_CHECK(node != nullptr, "a region's result is one of its own node");
    units::offer_recomputation(results[output], [node, plan, output = output] {
      return RegionFunction::recompute(node->ctx_, *plan, output);
    });
  }
}

}  // namespace

std::vector<at::Tensor> run_region(const c10::intrusive_ptr<RegionPlan>& plan, const std::vector<at::Tensor>& inputs) {
  const bool trains = at::GradMode::is_enabled() &&
                      std::any_of(inputs.begin(), inputs.end(), [](const auto& one) { return one.requires_grad(); });
  auto results = trains ? RegionFunction::apply(plan, at::TensorList(inputs)) : plan->run_forward(inputs);
  if (trains && plan->offers()) offer_recomputations(plan, inputs, results);
  const size_t num_outputs = plan->num_results() - plan->passthrough().size();
  results.resize(plan->num_results());
  for (size_t i = 0; i < plan->passthrough().size(); ++i) {
    const at::Tensor& input = inputs[plan->passthrough()[i]];
    if (!trains || !input.requires_grad()) results[num_outputs + i] = input;
  }
  return results;
}

}  // namespace dslaunch::runtime::model::fusion
