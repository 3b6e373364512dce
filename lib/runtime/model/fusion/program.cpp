#include "runtime/model/fusion/fused_operator.hpp"

#include <ATen/ATen.h>
#include <torch/csrc/jit/ir/constants.h>

#include <algorithm>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string_view>
#include <unordered_map>
#include <utility>

#include "base/format.hpp"
#include "base/overloaded.hpp"
#include "runtime/model/fusion/lowering.hpp"
#include "runtime/model/fusion/segmenter.hpp"

namespace dslaunch::runtime::model::fusion {

namespace {

using torch::jit::Graph;
using torch::jit::Node;
using torch::jit::Value;

c10::IValue list_of(const std::vector<c10::IValue>& items, bool of_tensors) {
  if (of_tensors) {
    c10::List<at::Tensor> list;
    for (const auto& item : items) list.push_back(item.toTensor());
    return list;
  }
  c10::List<int64_t> list;
  for (const auto& item : items) list.push_back(item.toInt());
  return list;
}

// Sizes, strides and dtype only.
c10::IValue as_meta(const c10::IValue& value) {
  if (!value.isTensor() || !value.toTensor().defined()) return value;
  const at::Tensor& tensor = value.toTensor();
  return at::empty_strided(tensor.sizes(), tensor.strides(), tensor.options().device(at::kMeta).requires_grad(false));
}

at::Tensor sum_of(const c10::IValue& a, const c10::IValue& b) {
  if (a.isTensor() && b.isTensor()) return at::add(a.toTensor(), b.toTensor());
  return a.isTensor() ? at::add(a.toTensor(), b.toScalar()) : at::add(b.toTensor(), a.toScalar());
}

// Of tensors without data. LibTorch lacks kernels of some operators for them.
void run_on_meta(const Node* node, torch::jit::Stack& stack) {
  const std::string_view kind = node->kind().toQualString();
  if (kind == "aten::layer_norm" || kind == "dslaunch::layer_norm") {
    const at::Tensor input = stack.at(0).toTensor();
    stack.assign({at::empty(input.sizes(), input.options())});
  } else if (kind == "aten::abs" || kind == "aten::relu") {
    stack.assign({at::empty_like(stack.at(0).toTensor())});
  } else if (kind == "aten::logical_not") {
    const at::Tensor input = stack.at(0).toTensor();
    stack.assign({at::empty_like(input, input.options().dtype(at::kBool))});
  } else if (kind == "aten::where" && stack.size() == 3 && (stack[1].isTensor() || stack[2].isTensor())) {
    // All three broadcast, the last two decide the dtype.
    stack.assign({at::mul(sum_of(stack[1], stack[2]), stack[0].toTensor())});
  } else {
    node->getOperation()(stack);
  }
}

bool is_tensor_list(const Value* value) {
  return value->type()->isSubtypeOf(*c10::ListType::ofTensors());
}

}  // namespace

class ProgramMaker {
 public:
  ProgramMaker(const Graph& graph, const std::vector<c10::IValue>& inputs, FusionProgram::Shared& shared)
      : graph_(graph), given_(inputs), shared_(shared), records_(at::GradMode::is_enabled()) {
    for (size_t i = 0; i < shared.offered.size(); ++i) {
      if (shared.offered[i]) offered_.insert(graph_.outputs()[i]);
    }
  }

  Result<std::unique_ptr<FusionProgram>> run() {
    std::optional<at::Device> device;
    for (const auto& input : given_) {
      if (!input.isTensor()) continue;
      const at::Tensor& tensor = input.toTensor();
      if (!tensor.defined() || tensor.layout() != at::kStrided) return Failure{"an input is not a dense tensor"};
      if (device && *device != tensor.device()) return Failure{"its inputs are on several devices"};
      device = tensor.device();
      like_ = tensor;
    }
    if (!device) return Failure{"it has no tensors"};
    follow();
    group();
    for (const size_t group : order()) emit(group);
    if (lacks_region_) return Failure{kOtherKernels};
    if (program_->num_regions_ == 0) return Failure{"none of its operators can be joined"};
    for (const Value* output : graph_.outputs()) {
      const auto passthrough = passthrough_.find(output);
      program_->outputs_.push_back(passthrough != passthrough_.end() ? passthrough->second : slot(output));
    }
    program_->num_slots_ = num_slots_;
    return std::move(program_);
  }

 private:
  // Runs every node on tensors without data; numbers that come out are constants.
  void follow() {
    const c10::InferenceMode no_history;
    for (size_t i = 0; i < given_.size(); ++i) {
      slots_[graph_.inputs()[i]] = num_slots_++;
      known_[graph_.inputs()[i]] = as_meta(given_[i]);
      if (records_ && given_[i].isTensor() && given_[i].toTensor().requires_grad()) trained_.insert(graph_.inputs()[i]);
    }
    for (const Node* node : graph_.nodes()) {
      if (node->kind() == c10::prim::Constant) {
        add_constant(node->output(), torch::jit::toIValue(node->output()).value());
        continue;
      }
      torch::jit::Stack stack;
      for (const Value* input : node->inputs()) stack.push_back(as_meta(known_.at(input)));
      if (node->kind() == c10::prim::ListConstruct) {
        known_[node->output()] = list_of(stack, is_tensor_list(node->output()));
        continue;  // made where a single operator reads it
      }
      run_on_meta(node, stack);
      if (stack.size() == 1 && (stack[0].isInt() || stack[0].isBool() || stack[0].isDouble())) {
        add_constant(node->output(), stack[0]);
        folded_.insert(node);
        continue;
      }
      nodes_.push_back(node);
      for (size_t i = 0; i < node->outputs().size(); ++i) known_[node->output(i)] = stack[i];
      const auto inputs = real_inputs(node);
      const bool is_trained =
          std::any_of(inputs.begin(), inputs.end(), [&](const auto* one) { return trained_.count(one) > 0; });
      if (is_trained) trained_.insert(node->outputs().begin(), node->outputs().end());
    }
  }

  void add_constant(const Value* value, const c10::IValue& constant) {
    slots_[value] = num_slots_;
    program_->constants_.emplace_back(num_slots_++, constant);
    known_[value] = constant;
  }

  KnownValues known_values(std::function<Id(const Value*)> id) const {
    return {[this](const Value* value) -> const c10::IValue& { return known_.at(value); }, std::move(id)};
  }

  // Nodes of one group have results of the same rows.
  void group() {
    std::unordered_map<const Value*, size_t> maker;
    std::map<std::vector<int64_t>, int64_t> kinds;
    const auto known = known_values({});
    std::vector<PartitionItem> items;
    for (size_t i = 0; i < nodes_.size(); ++i) {
      PartitionItem item;
      for (const Value* input : real_inputs(nodes_[i])) {
        if (const auto found = maker.find(input); found != maker.end()) item.inputs.push_back(found->second);
      }
      if (fits(nodes_[i], known)) {
        auto leading = known_.at(nodes_[i]->output()).toTensor().sizes().vec();
        leading.pop_back();
        item.kind = kinds.emplace(leading, kinds.size()).first->second;
      }
      for (const Value* output : nodes_[i]->outputs()) maker[output] = i;
      items.push_back(std::move(item));
    }
    group_ = partition(items);
    for (size_t i = 0; i < nodes_.size(); ++i) {
      members_[group_[i]].push_back(i);
      for (const size_t input : items[i].inputs) {
        if (group_[input] != group_[i]) needs_[group_[i]].insert(group_[input]);
      }
    }
  }

  // In the place of a list, what is in it.
  static std::vector<const Value*> real_inputs(const Node* node) {
    std::vector<const Value*> out;
    for (const Value* input : node->inputs()) {
      if (input->node()->kind() != c10::prim::ListConstruct) {
        out.push_back(input);
      } else {
        out.insert(out.end(), input->node()->inputs().begin(), input->node()->inputs().end());
      }
    }
    return out;
  }

  // Groups after those that they need.
  std::vector<size_t> order() const {
    std::vector<size_t> out;
    std::set<size_t> done;
    const std::function<void(size_t)> visit = [&](size_t group) {
      if (!done.insert(group).second) return;
      if (const auto found = needs_.find(group); found != needs_.end()) {
        for (const size_t needed : found->second) visit(needed);
      }
      out.push_back(group);
    };
    for (const auto& [group, members] : members_) visit(group);
    return out;
  }

  void emit(size_t group) {
    const auto& members = members_.at(group);
    if (members.size() == 1) return emit_operator(nodes_[members[0]]);
    emit_region(members);
  }

  void emit_operator(const Node* node) {
    for (const Value* input : node->inputs()) {
      if (slots_.count(input) == 0 && input->node()->kind() == c10::prim::ListConstruct) emit_list(input);
    }
    FusionProgram::Step step{FusionProgram::OperatorStep{node->getOperation()}, {}, {}};
    for (const Value* input : node->inputs()) step.inputs.push_back(slot(input));
    for (const Value* output : node->outputs()) step.outputs.push_back(slots_[output] = num_slots_++);
    program_->steps_.push_back(std::move(step));
  }

  void emit_list(const Value* list) {
    FusionProgram::Step step{FusionProgram::ListStep{is_tensor_list(list)}, {}, {}};
    for (const Value* item : list->node()->inputs()) step.inputs.push_back(slot(item));
    step.outputs.push_back(slots_[list] = num_slots_++);
    program_->steps_.push_back(std::move(step));
  }

  void emit_region(const std::vector<size_t>& members) {
    const std::set<const Node*> inside = nodes_of(members);
    auto leading = known_.at(nodes_[members[0]]->output()).toTensor().sizes().vec();
    leading.pop_back();
    Region region{.num_leading_dims = leading.size()};
    Builder build(region);
    FusionProgram::Step step;
    std::unordered_map<const Value*, Id> ids;
    std::vector<const Value*> outside;  // by input of the region
    const auto known = known_values([&](const Value* value) {
      if (const auto found = ids.find(value); found != ids.end()) return found->second;
      outside.push_back(value);
      return ids[value] = build.input(input_of(known_.at(value).toTensor(), leading));
    });
    std::vector<RegionPlan::Result> results;
    std::vector<size_t> offered;
    std::map<std::pair<Id, at::ScalarType>, FusionProgram::Slot> written;
    for (const size_t i : members) ids[nodes_[i]->output()] = lower(nodes_[i], known, build).value();
    for (const size_t i : members) {
      const Value* value = nodes_[i]->output();
      if (!is_needed_outside(value, inside)) continue;
      const at::Tensor tensor = known_.at(value).toTensor();
      const Id id = ids.at(value);
      if (region.node(id).op == Op::kInput) {
        const Value* input = outside[static_cast<size_t>(region.node(id).index)];
        if (known_.at(input).toTensor().scalar_type() == tensor.scalar_type() &&
            known_.at(input).toTensor().sizes() == tensor.sizes()) {
          slots_[value] = slot(input);
          continue;
        }
      }
      const auto [place, is_new] = written.try_emplace({id, tensor.scalar_type()}, num_slots_);
      slots_[value] = place->second;
      if (!is_new) continue;
      num_slots_ += 1;
      if (offered_.count(value) > 0 && !is_read(value, inside)) offered.push_back(region.outputs.size());
      region.outputs.push_back({id, tensor.scalar_type()});
      results.push_back({tensor.sizes().vec(), strides_of(tensor)});
      step.outputs.push_back(place->second);
    }
    if (region.outputs.empty()) return;
    // Inputs that nothing reads any more stay out.
    region = without_unused(region);
    std::vector<Input> inputs;
    std::vector<at::Tensor> tensors;
    std::vector<bool> wanted;
    std::vector<size_t> passthrough;
    for (auto& node : region.nodes) {
      if (node.op != Op::kInput) continue;
      const auto index = static_cast<size_t>(node.index);
      step.inputs.push_back(slot(outside[index]));
      tensors.push_back(known_.at(outside[index]).toTensor());
      wanted.push_back(trained_.count(outside[index]) > 0);
      node.index = static_cast<int64_t>(inputs.size());
      inputs.push_back(region.inputs[index]);
      if (!is_passthrough(outside[index], leading)) continue;
      passthrough.push_back(static_cast<size_t>(node.index));
      step.outputs.push_back(passthrough_[outside[index]] = num_slots_++);
    }
    region.inputs = std::move(inputs);
    const auto plan =
        plan_for(std::move(region), std::move(leading), std::move(results), std::move(passthrough), std::move(offered));
    if (plan == nullptr) return;
    if (like_.is_cuda()) plan->prepare(tensors, wanted, like_);
    step.what = FusionProgram::RegionStep{plan};
    program_->steps_.push_back(std::move(step));
    program_->num_regions_ += 1;
  }

  // Null: it would need kernels of its own.
  c10::intrusive_ptr<RegionPlan> plan_for(Region region, std::vector<int64_t> leading,
                                          std::vector<RegionPlan::Result> results, std::vector<size_t> passthrough,
                                          std::vector<size_t> offered) {
    const std::string key = fmt::format("{} {} {}\n{}", leading.size(), fmt::join(passthrough, ","),
                                        fmt::join(offered, ","), to_text(region));
    const auto found = shared_.regions.find(key);
    if (found != shared_.regions.end()) {
      return c10::make_intrusive<RegionPlan>(*found->second, std::move(leading), std::move(results));
    }
    lacks_region_ |= !shared_.may_grow;
    if (lacks_region_) return {};
    return shared_.regions[key] =
               c10::make_intrusive<RegionPlan>(std::move(region), std::move(leading), std::move(results),
                                               std::move(passthrough), std::move(offered), shared_.services);
  }

  // An input of the subgraph that is a result of it as well, of whole rows; by the first region that reads it.
  bool is_passthrough(const Value* value, const std::vector<int64_t>& leading) const {
    const auto outputs = graph_.outputs();
    if (value->node()->kind() != c10::prim::Param || passthrough_.count(value) > 0) return false;
    if (std::find(outputs.begin(), outputs.end(), value) == outputs.end()) return false;
    const auto sizes = known_.at(value).toTensor().sizes();
    return !sizes.empty() && sizes.slice(0, sizes.size() - 1) == at::IntArrayRef(leading) && sizes.back() > 1;
  }

  static Input input_of(const at::Tensor& tensor, const std::vector<int64_t>& leading) {
    Input out{tensor.scalar_type(), tensor.dim() == 0 ? 1 : tensor.size(-1), std::vector<bool>(leading.size())};
    for (int64_t d = 0; d + 1 < tensor.dim(); ++d) {
      const size_t at = leading.size() - static_cast<size_t>(tensor.dim() - 1) + static_cast<size_t>(d);
      out.varies[at] = tensor.size(d) == leading[at];
    }
    return out;
  }

  // As the operator would have laid it out; a view gets memory of its own.
  static std::vector<int64_t> strides_of(const at::Tensor& tensor) {
    if (tensor.is_non_overlapping_and_dense() && tensor.stride(-1) == 1) return tensor.strides().vec();
    return at::empty(tensor.sizes(), tensor.options()).strides().vec();
  }

  std::set<const Node*> nodes_of(const std::vector<size_t>& members) const {
    std::set<const Node*> out;
    for (const size_t i : members) out.insert(nodes_[i]);
    return out;
  }

  bool is_needed_outside(const Value* value, const std::set<const Node*>& inside) const {
    return std::any_of(value->uses().begin(), value->uses().end(), [&](const auto& use) {
      if (use.user->kind() != c10::prim::ListConstruct)
        return inside.count(use.user) == 0 && folded_.count(use.user) == 0;
      return is_needed_outside(use.user->output(), inside);
    });
  }

  // In the subgraph, by a node outside of the region.
  static bool is_read(const Value* value, const std::set<const Node*>& inside) {
    return std::any_of(value->uses().begin(), value->uses().end(), [&](const auto& use) {
      return use.user->kind() != c10::prim::Return && inside.count(use.user) == 0;
    });
  }

  FusionProgram::Slot slot(const Value* value) const { return slots_.at(value); }

  const Graph& graph_;
  const std::vector<c10::IValue>& given_;
  FusionProgram::Shared& shared_;
  const bool records_;  // autograd
  std::unique_ptr<FusionProgram> program_{new FusionProgram};
  bool lacks_region_ = false;
  at::Tensor like_;  // an input
  std::unordered_map<const Value*, c10::IValue> known_;
  std::set<const Value*> offered_;  // outputs
  std::set<const Value*> trained_;  // what a gradient may flow to
  std::unordered_map<const Value*, FusionProgram::Slot> slots_;
  size_t num_slots_ = 0;
  std::unordered_map<const Value*, FusionProgram::Slot> passthrough_;  // inputs as results
  std::vector<const Node*> nodes_;
  std::set<const Node*> folded_;  // whose results are constants
  std::vector<size_t> group_;     // by node
  std::map<size_t, std::vector<size_t>> members_;
  std::map<size_t, std::set<size_t>> needs_;
};

Result<std::unique_ptr<FusionProgram>> FusionProgram::make(const Graph& subgraph,
                                                           const std::vector<c10::IValue>& inputs, Shared& shared) {
  try {
    return ProgramMaker(subgraph, inputs, shared).run();
  } catch (const c10::Error& error) {  // an operator that refuses these inputs: it does so when it runs, too
    return Failure{std::string(error.what_without_backtrace())};
  }
}

std::vector<c10::IValue> FusionProgram::run(const std::vector<c10::IValue>& inputs) const {
  std::vector<c10::IValue> values(num_slots_);
  std::copy(inputs.begin(), inputs.end(), values.begin());
  for (const auto& [slot, constant] : constants_) values[slot] = constant;
  for (const auto& step : steps_) {
    std::visit(Overloaded{[&](const RegionStep& region) {
                            std::vector<at::Tensor> tensors;
                            for (const Slot slot : step.inputs) tensors.push_back(values[slot].toTensor());
                            auto results = run_region(region.plan, tensors);
                            for (size_t i = 0; i < results.size(); ++i) values[step.outputs[i]] = std::move(results[i]);
                          },
                          [&](const OperatorStep& single) {
                            torch::jit::Stack stack;
                            for (const Slot slot : step.inputs) stack.push_back(values[slot]);
                            torch::jit::Operation operation = single.operation;
                            operation(stack);
                            for (size_t i = 0; i < step.outputs.size(); ++i)
                              values[step.outputs[i]] = std::move(stack[i]);
                          },
                          [&](const ListStep& list) {
                            std::vector<c10::IValue> items;
                            for (const Slot slot : step.inputs) items.push_back(values[slot]);
                            values[step.outputs[0]] = list_of(items, list.of_tensors);
                          }},
               step.what);
  }
  std::vector<c10::IValue> out;
  for (const Slot slot : outputs_) out.push_back(values[slot]);
  return out;
}

std::string FusionProgram::describe() const {
  std::string out;
  for (const auto& step : steps_) {
    if (const auto* region = std::get_if<RegionStep>(&step.what)) {
      out += fmt::format("region over rows {}:\n{}", fmt::join(region->plan->leading(), " x "),
                         to_text(region->plan->forward()));
    }
  }
  return out;
}

}  // namespace dslaunch::runtime::model::fusion
