#include "runtime/model/tensor_parallel/probe.hpp"

#include <ATen/ATen.h>
#include <ATen/CPUGeneratorImpl.h>
#include <ATen/Parallel.h>
#include <torch/csrc/autograd/autograd.h>

#include <algorithm>
#include <cmath>
#include <exception>
#include <set>
#include <string_view>
#include <utility>

#include "base/error.hpp"
#include "base/format.hpp"
#include "base/scope_exit.hpp"
#include "runtime/model/operators/operator_traits.hpp"
#include "runtime/model/tensor_parallel/apply_placements.hpp"
#include "runtime/model/tensor_parallel/probed_graph.hpp"
#include "runtime/model/tensor_parallel/probed_values.hpp"
#include "runtime/model/tensor_parallel/virtual_ranks.hpp"
#include "runtime/model/torchscript/file/script_error.hpp"
#include "runtime/model/torchscript/units/gather_node.hpp"

namespace dslaunch::runtime::model::tensor_parallel {
namespace {

using placement::Placement;
using torch::autograd::variable_list;
using torch::jit::Node;
using torch::jit::Value;

// Of the largest element: what another order of additions and sums of 16 bits change, and no fault stays below.
constexpr double kBound = 1e-3, kHalfBound = 5e-2;
// A gradient that is zero but for rounding (that of a key's bias) is compared with the largest of all gradients.
constexpr double kNegligible = 1e-3;

struct ProbedParameter {
  int number = 0;  // in the table
  std::string name;
  std::vector<int64_t> shape;
  at::ScalarType dtype = at::kFloat;
  bool is_trained = true;
  std::optional<Placement> placement = {};
};

// Of a value of which each rank has its positions.
struct Positions {
  int64_t dim = 0, length = 0;
};

struct Named {
  std::string name;
  at::Tensor value;
  const ProbedParameter* parameter = nullptr;  // whose gradient it is
  std::optional<Positions> positions = {};
};

at::Tensor own_part(const at::Tensor& whole, const Positions& positions, const TensorGroup& group) {
  return part_of(whole, positions.dim, {own_positions(whole.size(positions.dim), group)});
}

// The first seeds of each kind of value.
constexpr uint64_t kArgumentSeeds = 0, kResultSeeds = 1000, kUpstreamSeeds = 2000, kParameterSeeds = 10000;

// Numbers that follow from `seed` alone, whatever else draws; the same on all ranks.
at::Generator generator_of(uint64_t seed) {
  return at::detail::createCPUGenerator(seed * 2654435761U + 1);
}

at::Tensor random_parameter(const ProbedParameter& parameter) {
  const uint64_t seed = kParameterSeeds + static_cast<uint64_t>(parameter.number);
  const size_t dims = parameter.shape.size();
  // Biases and weights of norms far from zero; GEMMs that neither grow nor vanish.
  if (dims < 2) return random_tensor(parameter.shape, seed, 0.5, 1.5).to(parameter.dtype);
  const double width = static_cast<double>(std::min(parameter.shape[dims - 1], parameter.shape[dims - 2]));
  const double most = std::sqrt(3 / std::max(width, 1.0));
  return random_tensor(parameter.shape, seed, -most, most).to(parameter.dtype);
}

// Like a tensor without elements. Indices are below `bound`; 0: other whole numbers are 1, and flags are true.
c10::IValue random_value(const c10::IValue& known, at::Generator& generator, int64_t bound, at::Device device) {
  if (known.isTuple()) {
    std::vector<c10::IValue> elements;
    for (const auto& element : known.toTupleRef().elements()) {
      elements.push_back(random_value(element, generator, bound, device));
    }
    return c10::ivalue::Tuple::create(std::move(elements));
  }
  if (!known.isTensor() || !known.toTensor().defined()) return known;
  const at::Tensor tensor = known.toTensor();
  if (!tensor.is_meta()) return tensor.clone().to(device);
  const auto options = at::TensorOptions().dtype(tensor.scalar_type());
  if (tensor.is_floating_point()) {
    return at::randn(tensor.sizes(), generator, at::TensorOptions()).to(device, tensor.scalar_type());
  }
  if (bound > 0 && tensor.scalar_type() != at::kBool) {
    return at::randint(bound, tensor.sizes(), generator, options).to(device);
  }
  return at::ones(tensor.sizes(), options.device(device));
}

// The number of rows that whole numbers of a graph index, classes included; 0: nothing is indexed by them.
class IndexBound {
 public:
  explicit IndexBound(const placement::KnownValues& known) : known_(known) {}

  int64_t of(const Value* value) {
    follow(value);
    return bound_;
  }

 private:
  void follow(const Value* value) {
    if (!seen_.insert(value).second) return;
    for (const auto& use : value->uses()) {
      read(use);
      if (!keeps_numbers(use.user)) continue;
      for (const Value* output : use.user->outputs()) {
        const c10::IValue* known = known_.find(output);
        if (known != nullptr && known->isTensor() && known->toTensor().defined() &&
            known->toTensor().scalar_type() == at::kLong) {
          follow(output);
        }
      }
    }
  }

  // Whether results are among the numbers of the operands. Terms of a sum (positions that count a mask) have not its
  // bound.
  static bool keeps_numbers(const Node* node) {
    const auto& traits = operators::traits(node->kind());
    return traits.type == operators::TypeRole::kElements || traits.elements != operators::Elements::kComputed ||
           traits.lowering == operators::Lowering::kCast || traits.lowering == operators::Lowering::kClamp;
  }

  void read(const torch::jit::Use& use) {
    const std::string_view kind = use.user->kind().toQualString();
    if ((kind == "aten::embedding" || kind == "dslaunch::embedding_of_slice") && use.offset == 1) {
      limit(use.user->input(0), 0);
    } else if ((kind == "aten::cross_entropy_loss" || kind == "dslaunch::cross_entropy") && use.offset == 1) {
      limit(use.user->input(0), 1);
    } else if (kind == "dslaunch::chunked_cross_entropy" && use.offset == 5) {
      const auto is_out_in = known_.find(use.user->input(3));
      limit(use.user->input(1), is_out_in != nullptr && is_out_in->isBool() && !is_out_in->toBool() ? 1 : 0);
    } else if ((kind == "aten::index_select" || kind == "aten::gather") && use.offset == 2) {
      if (const auto sizes = known_.sizes(use.user->input(0)); sizes && !sizes->empty()) {
        limit(*std::min_element(sizes->begin(), sizes->end()));
      }
    }
  }

  void limit(const Value* table, size_t dim) {
    if (const auto sizes = known_.sizes(table); sizes && dim < sizes->size()) limit((*sizes)[dim]);
  }
  void limit(int64_t rows) { bound_ = bound_ == 0 ? rows : std::min(bound_, rows); }

  const placement::KnownValues& known_;
  std::set<const Value*> seen_;
  int64_t bound_ = 0;
};

bool is_half(const Named& one) {
  return one.value.defined() && at::isReducedFloatingType(one.value.scalar_type());
}

}  // namespace

struct Probe::Subject {
  std::string unit;  // path; empty: the model outside its units
  size_t graph = 0;  // of the plan
  torch::jit::Module module;
  ProbedGraph whole;
  std::vector<c10::IValue> arguments, results;  // results of calls; tensors have no elements
  std::vector<int64_t> bounds;                  // of the arguments' whole numbers
  // By tensor of what the graph is run with: arguments, then results of calls; and of what comes out.
  std::vector<std::optional<Positions>> given, returned;
  std::optional<int64_t> length;  // that the split graph is given
  std::map<SlotKey, ProbedParameter> parameters;
  std::string obstacle;
  std::string kind;  // the same for those that compute the same; empty: it is always compared

  std::string find_kind() const;
  // Of the whole graph, or of a rank's with what the whole one had.
  Pass pass(const ProbedGraph& probed, at::Device device, const TensorGroup* group = nullptr,
            const Pass* of_whole = nullptr) const;
};

struct Probe::SplitGraphs {
  std::vector<ProbedGraph> graphs;   // by subject
  std::vector<bool> is_repeat = {};  // of an earlier one, which proves it
};

struct Probe::Pass {
  std::vector<Named> outputs, gradients;
  double largest_gradient = 0;
  std::map<SlotKey, at::Tensor> parameters;  // whole ones, which the ranks have parts of
  std::set<SlotKey> written;                 // of them: by the graph itself
  std::string obstacle;                      // why there are none
};

namespace {

std::string unit_of(const std::map<SlotKey, ProbedParameter>& parameters, const std::vector<TensorAttribute>& read) {
  for (const auto& [slot, path, value] : read) {
    const auto found = parameters.find(slot);
    if (found == parameters.end() || !found->second.name.ends_with(path)) continue;
    const std::string& name = found->second.name;
    return name.size() == path.size() ? std::string() : name.substr(0, name.size() - path.size() - 1);
  }
  return {};
}

// All that the probe knows of a value.
std::string shape_text(const c10::IValue& value) {
  if (value.isTensor() && value.toTensor().defined()) {
    return fmt::format("{}{}", c10::str(value.toTensor().sizes()), c10::toString(value.toTensor().scalar_type()));
  }
  if (!value.isTuple()) return c10::str(value);
  std::string out = "(";
  for (const auto& element : value.toTupleRef().elements()) out += shape_text(element) + ",";
  return out + ")";
}

std::string placement_text(const std::optional<Placement>& placement) {
  if (!placement) return "whole";
  std::string out = fmt::format("{}", placement->dim);
  for (const auto& segment : placement->segments) out += fmt::format(" {}x{}", segment.items, segment.width);
  return out + c10::str(placement->shared.size());
}

// What a graph is run with, and what of it has a gradient.
struct Inputs {
  const std::vector<std::optional<Positions>>& positions;  // by tensor
  const TensorGroup* group = nullptr;                      // null: everything is whole
  torch::jit::Stack stack = {};
  std::vector<Named> leaves = {};
  size_t num_tensors = 0;

  void add(c10::IValue value, const std::string& name) {
    const size_t first = num_tensors;
    num_tensors += units::tensors_in_all({value}).size();
    if (group != nullptr) value = parts_of(value, first);
    const auto tensors = units::tensors_in_all({value});
    for (size_t i = 0; i < tensors.size(); ++i) {
      const at::Tensor& tensor = tensors[i];
      if (!tensor.defined() || !tensor.is_floating_point()) continue;
      const bool is_only = value.isTensor();
      leaves.push_back({is_only ? name : fmt::format("{}, tensor {}", name, leaves.size()), tensor.requires_grad_(),
                        nullptr, positions.at(first + i)});
    }
    // The graph may write to what it is given, which a leaf does not allow.
    stack.push_back(value.isTensor() && value.toTensor().requires_grad() ? c10::IValue(value.toTensor().clone())
                                                                         : value);
  }

 private:
  c10::IValue parts_of(const c10::IValue& value, size_t first) const {
    if (value.isTensor()) {
      const auto& own = positions.at(first);
      return own ? own_part(value.toTensor(), *own, *group).clone() : value.toTensor();
    }
    if (!value.isTuple()) return value;
    std::vector<c10::IValue> elements;
    for (const auto& element : value.toTupleRef().elements()) {
      elements.push_back(parts_of(element, first));
      first += units::tensors_in_all({element}).size();
    }
    return c10::ivalue::Tuple::create(std::move(elements));
  }
};

}  // namespace

std::string Probe::Subject::find_kind() const {
  if (whole.structure.empty()) return {};
  std::string out = whole.structure;
  for (size_t i = 0; i < arguments.size(); ++i) out += fmt::format("\n{} {}", shape_text(arguments[i]), bounds[i]);
  for (const auto& result : results) out += "\n" + shape_text(result);
  for (const auto* positions : {&given, &returned}) {
    for (const auto& of_tensor : *positions) out += of_tensor ? fmt::format(" {}", of_tensor->dim) : " -";
  }
  for (const auto& attribute : whole.attributes) {
    out += "\n" + shape_text(attribute.value);
    const auto found = parameters.find(attribute.slot);
    if (found == parameters.end()) continue;
    out += fmt::format(" {} {}", found->second.is_trained, placement_text(found->second.placement));
  }
  return out;
}

Probe::Pass Probe::Subject::pass(const ProbedGraph& probed, at::Device device, const TensorGroup* group,
                                 const Pass* of_whole) const {
  const at::AutoGradMode with_gradients(true);
  Pass out;
  Inputs inputs{.positions = given, .group = group, .stack = {module._ivalue()}};
  for (size_t i = 0; i < arguments.size(); ++i) {
    auto generator = generator_of(kArgumentSeeds + i);
    inputs.add(random_value(arguments[i], generator, bounds[i], device), fmt::format("input {}", i));
  }
  if (group != nullptr && length) inputs.stack.emplace_back(*length);
  for (const auto& attribute : probed.attributes) {
    const auto found = parameters.find(attribute.slot);
    if (found == parameters.end()) {
      inputs.stack.emplace_back(attribute.value.detach().clone().to(device));
      continue;
    }
    const ProbedParameter& parameter = found->second;
    at::Tensor value;
    if (of_whole == nullptr) {
      value = random_parameter(parameter).to(device);
      out.parameters.emplace(attribute.slot, value.detach());
    } else {
      value = of_whole->parameters.at(attribute.slot);
      if (parameter.placement) {
        const LocalSlice slice = placement::slice_of(*parameter.placement, group->size(), group->rank());
        value = part_of(value, slice.dim, slice.ranges).contiguous();
      }
      value = of_whole->written.count(attribute.slot) > 0 ? value.clone() : value.detach();
    }
    if (parameter.is_trained && value.is_floating_point()) {
      inputs.leaves.push_back({fmt::format("'{}'", attribute.path), value.requires_grad_(), &parameter});
    }
    inputs.stack.emplace_back(value);
  }
  for (size_t i = 0; i < results.size(); ++i) {
    auto generator = generator_of(kResultSeeds + i);
    inputs.add(random_value(results[i], generator, 0, device), fmt::format("the result of unit call {}", i));
  }

  variable_list outputs, upstream, leaves;
  const auto tensors = units::tensors_in_all(probed.run(std::move(inputs.stack), device));
  for (size_t i = 0; i < tensors.size(); ++i) {
    const at::Tensor& tensor = tensors[i];
    if (!tensor.defined()) continue;
    const auto positions = group == nullptr ? std::nullopt : returned.at(i);
    out.outputs.push_back({fmt::format("output {}", out.outputs.size()), tensor.detach(), nullptr, positions});
    if (!tensor.is_floating_point() || !tensor.requires_grad()) continue;
    auto generator = generator_of(kUpstreamSeeds + out.outputs.size());
    auto shape = tensor.sizes().vec();
    if (positions) shape.at(static_cast<size_t>(positions->dim)) = positions->length;
    const at::Tensor random = at::randn(shape, generator, at::TensorOptions());
    outputs.push_back(tensor);
    upstream.push_back((positions ? own_part(random, *positions, *group) : random).to(device, tensor.scalar_type()));
  }
  for (auto& [slot, value] : out.parameters) {
    if (value._version() == 0) continue;
    value = random_parameter(parameters.at(slot)).to(device);
    out.written.insert(slot);
  }
  for (const auto& leaf : inputs.leaves) leaves.push_back(leaf.value);
  variable_list gradients(leaves.size());
  if (!outputs.empty() && !leaves.empty()) {
    gradients = torch::autograd::grad(outputs, leaves, upstream, /*retain_graph=*/std::nullopt, /*create_graph=*/false,
                                      /*allow_unused=*/true);
  }
  for (size_t i = 0; i < leaves.size(); ++i) {
    out.gradients.push_back({fmt::format("the gradient of {}", inputs.leaves[i].name), gradients[i],
                             inputs.leaves[i].parameter, group == nullptr ? std::nullopt : inputs.leaves[i].positions});
  }
  return out;
}

namespace {

struct Difference {
  double relative = 0;  // to what counts as the tensor's size
  size_t position = 0;  // among the outputs, then the gradients, of the split graph: alike on all ranks
};

const std::string& name_at(const Probe::Pass& pass, size_t position) {
  const size_t outputs = pass.outputs.size();
  return position < outputs ? pass.outputs[position].name : pass.gradients.at(position - outputs).name;
}

// The first output or gradient that differs.
std::optional<Difference> compare(const Probe::Pass& found, const Probe::Pass& whole, const TensorGroup& group) {
  DSL_CHECK(found.outputs.size() == whole.outputs.size(), "a split graph has the outputs of the whole one");
  size_t position = 0;
  const bool has_half = std::any_of(whole.outputs.begin(), whole.outputs.end(), is_half) ||
                        std::any_of(whole.gradients.begin(), whole.gradients.end(), is_half);
  const double bound = has_half ? kHalfBound : kBound;
  const auto difference_of = [&](const Named& one, const at::Tensor& expected,
                                 double least) -> std::optional<Difference> {
    const Distance distance = distance_between(one.value, expected);
    const double size = std::max({distance.largest, least, 1e-30});
    const bool is_close = distance.apart <= size * bound;
    return is_close ? std::nullopt : std::optional(Difference{distance.apart / size, position});
  };
  for (; position < found.outputs.size(); ++position) {
    const Named& output = found.outputs[position];
    const at::Tensor& value = whole.outputs[position].value;
    const at::Tensor part = output.positions ? own_part(value, *output.positions, group) : value;
    if (auto difference = difference_of(output, part, 0)) return difference;
  }
  std::map<std::string, const Named*> expected;  // the graphs may read parameters in another order
  for (const auto& gradient : whole.gradients) expected.emplace(gradient.name, &gradient);
  for (const auto& gradient : found.gradients) {
    const auto of_whole = expected.find(gradient.name);
    DSL_CHECK(of_whole != expected.end(), "a split graph reads what the whole one reads");
    at::Tensor value = of_whole->second->value;
    if (const auto* parameter = gradient.parameter; parameter != nullptr && parameter->placement && value.defined()) {
      const LocalSlice slice = placement::slice_of(*parameter->placement, group.size(), group.rank());
      value = part_of(value, slice.dim, slice.ranges);
    }
    if (gradient.positions && value.defined()) value = own_part(value, *gradient.positions, group);
    if (gradient.value.defined() || value.defined()) {
      if (auto difference = difference_of(gradient, value, kNegligible * whole.largest_gradient)) return difference;
    }
    position += 1;
  }
  return std::nullopt;
}

// Of the first rank of those that have found one; the same on all ranks.
struct RankDifference {
  int rank = 0;
  Difference difference;
};

// [ranks, numbers] of all ranks.
at::Tensor exchange(const std::vector<double>& own, TensorGroup& group, at::Device device) {
  return group.stacked(at::tensor(own, at::kDouble).to(device)).cpu();
}

std::optional<RankDifference> first_of_all(const std::optional<Difference>& own, TensorGroup& group,
                                           at::Device device) {
  const auto found = own.value_or(Difference{-1, 0});
  const at::Tensor all = exchange({found.relative, static_cast<double>(found.position)}, group, device);
  for (int rank = 0; rank < group.size(); ++rank) {
    const double relative = all[rank][0].item<double>();
    if (relative >= 0) return RankDifference{rank, {relative, static_cast<size_t>(all[rank][1].item<double>())}};
  }
  return std::nullopt;
}

// What of a value's tensors is positions. `dims`: by tensor; empty: none.
void add_positions(const c10::IValue* known, const placement::UnitPositions::Dims& dims,
                   std::vector<std::optional<Positions>>& out) {
  if (known == nullptr) return;
  const auto tensors = units::tensors_in_all({*known});
  for (size_t i = 0; i < tensors.size(); ++i) {
    const auto dim = i < dims.size() ? dims[i] : std::nullopt;
    out.push_back(dim ? std::optional(Positions{*dim, tensors[i].size(*dim)}) : std::nullopt);
  }
}

void take_positions(Probe::Subject& subject, const placement::GraphPlan& plan) {
  const auto add = [&](const Value* value, const placement::UnitPositions::Dims& dims, auto& out) {
    add_positions(plan.known.find(value), dims, out);
  };
  const auto of_argument = [](const placement::UnitPositions& unit, size_t i) -> placement::UnitPositions::Dims {
    return i < unit.arguments.size() ? placement::UnitPositions::Dims{unit.arguments[i]}
                                     : placement::UnitPositions::Dims();
  };
  const auto inputs = plan.flat.graph->inputs().slice(1);
  for (size_t i = 0; i < inputs.size(); ++i) {
    add(inputs[i], of_argument(plan.positions, i), subject.given);
    if (i < plan.positions.arguments.size() && plan.positions.arguments[i])
      subject.length = subject.given.back()->length;
  }
  for (const Value* output : plan.flat.graph->outputs()) add(output, plan.positions.results, subject.returned);
  for (const Node* node : plan.flat.graph->nodes()) {
    if (node->kind() != c10::prim::CallMethod) continue;
    const auto found = plan.calls.find(node);
    const placement::UnitPositions unit = found == plan.calls.end() ? placement::UnitPositions() : found->second;
    add(node->output(), unit.results, subject.given);
    for (size_t i = 1; i < node->inputs().size(); ++i) {
      add(node->input(i), of_argument(unit, i - 1), subject.returned);
    }
  }
}

std::unique_ptr<Probe::Subject> make_subject(const placement::GraphPlan& plan, size_t number, size_t instance,
                                             const std::map<SlotKey, ProbedParameter>& parameters) {
  auto subject = std::make_unique<Probe::Subject>();
  subject->graph = number;
  subject->module = plan.instances[instance];
  const auto known_or_none = [&](const Value* value) {
    const c10::IValue* known = plan.known.find(value);
    return known == nullptr ? c10::IValue() : *known;
  };
  for (const Value* input : plan.flat.graph->inputs().slice(1)) {
    subject->arguments.push_back(known_or_none(input));
    subject->bounds.push_back(IndexBound(plan.known).of(input));
  }
  for (const Node* node : plan.flat.graph->nodes()) {
    if (node->kind() == c10::prim::CallMethod) subject->results.push_back(known_or_none(node->output()));
  }
  take_positions(*subject, plan);
  auto whole = to_probed_graph(*plan.flat.graph, subject->module);
  if (whole.ok()) {
    subject->whole = *std::move(whole);
  } else {
    subject->obstacle = whole.error();
  }
  subject->unit = unit_of(parameters, subject->whole.attributes);
  for (const auto& attribute : subject->whole.attributes) {
    const auto found = parameters.find(attribute.slot);
    if (found != parameters.end()) subject->parameters.insert(*found);
  }
  return subject;
}

}  // namespace

Probe::Probe(const placement::ModelPlan& plan, const ParameterTable& table,
             const std::vector<std::vector<ParameterLocation>>& locations, config::TensorProbe which)
    : num_threads_(at::get_num_threads()) {
  std::map<SlotKey, ProbedParameter> parameters;
  for (size_t i = 0; i < locations.size(); ++i) {
    const auto& info = table.parameters.at(i);
    const auto placed = plan.parameters.find(static_cast<int>(i));
    const ProbedParameter parameter{
        static_cast<int>(i), info.name,
        info.whole_shape(),  info.dtype,
        info.trainable,      placed == plan.parameters.end() ? std::nullopt : std::optional(placed->second)};
    for (const auto& location : locations[i])
      parameters.insert_or_assign({location.object.get(), location.slot}, parameter);
  }
  for (size_t number = 0; number < plan.graphs.size() && which != config::TensorProbe::kOff; ++number) {
    const auto& each = plan.graphs[number];
    const size_t count = which == config::TensorProbe::kAll ? each.instances.size() : 1;
    for (size_t i = 0; i < count; ++i) {
      auto subject = make_subject(each, number, i, parameters);
      if (which == config::TensorProbe::kDistinct) subject->kind = subject->find_kind();
      subjects_.push_back(std::move(subject));
    }
  }
}

Probe::~Probe() = default;

namespace {

Probe::Pass try_pass(const Probe::Subject& subject, at::Device device) {
  Probe::Pass pass;
  try {
    pass = subject.pass(subject.whole, device);
    for (const auto& gradient : pass.gradients) {
      pass.largest_gradient = std::max(pass.largest_gradient, largest_of(gradient.value));
    }
  } catch (const std::exception& error) {
    pass.obstacle = fmt::format("its forward or backward fails: {}", file::cause_of(error));
  }
  return pass;
}

}  // namespace

std::shared_ptr<const Probe::Pass> Probe::whole_pass(size_t subject, at::Device device) {
  const std::lock_guard lock(mutex_);
  if (last_ == subject) return last_pass_;
  last_pass_.reset();  // one unit at a time
  // Other virtual ranks wait for this one, and leave it their threads.
  const int own_threads = at::get_num_threads();
  at::set_num_threads(num_threads_);
  const ScopeExit restore([own_threads] { at::set_num_threads(own_threads); });
  auto pass = subjects_[subject]->obstacle.empty() ? try_pass(*subjects_[subject], device)
                                                   : Pass{.obstacle = subjects_[subject]->obstacle};
  last_pass_ = std::make_shared<const Pass>(std::move(pass));
  last_ = subject;
  return last_pass_;
}

namespace {

Probe::Pass split_pass(const Probe::Subject& subject, const ProbedGraph& graph, const Probe::Pass& whole,
                       TensorGroup& group, at::Device device) {
  try {
    return subject.pass(graph, device, &group, &whole);
  } catch (const Error&) {
    throw;
  } catch (const std::exception& error) {
    group.throw_failure();
    throw Error(ExitCode::kInternal, fmt::format("tensor parallelism: unit '{}' fails on tensor rank {}: {}",
                                                 subject.unit, group.rank(), file::cause_of(error)));
  }
}

}  // namespace

std::shared_ptr<const Probe::SplitGraphs> Probe::split_graphs(const placement::ModelPlan& edited) const {
  std::set<std::string> seen;
  auto out = std::make_shared<SplitGraphs>();
  for (const auto& subject : subjects_) {
    auto graph = to_probed_graph(*edited.graphs.at(subject->graph).flat.graph, subject->module);
    DSL_CHECK(graph.ok() || !subject->obstacle.empty(), "a split graph can be run as the whole one can");
    const bool is_new = subject->kind.empty() || !graph.ok() || seen.insert(subject->kind + graph->structure).second;
    out->is_repeat.push_back(!is_new);
    out->graphs.push_back(graph.ok() ? *std::move(graph) : ProbedGraph());
  }
  return out;
}

ProbeReport Probe::run(const SplitGraphs& split, TensorGroup& group, at::Device device, bool is_manual) {
  ProbeReport report;
  for (size_t i = 0; i < subjects_.size(); ++i) {
    const Subject& subject = *subjects_[i];
    if (split.is_repeat.at(i)) continue;
    const std::string what =
        subject.unit.empty() ? "the model outside its units" : fmt::format("unit '{}'", subject.unit);
    const auto whole = whole_pass(i, device);
    const std::string& obstacle = subject.obstacle.empty() ? whole->obstacle : subject.obstacle;
    // Some rank alone may lack the memory.
    if (exchange({obstacle.empty() ? 0.0 : 1.0}, group, device).any().item<bool>()) {
      report.not_compared.push_back(fmt::format("{} was not compared with its unsplit form: {}", what,
                                                obstacle.empty() ? "another tensor rank cannot" : obstacle));
      continue;
    }
    const Pass found = split_pass(subject, split.graphs.at(i), *whole, group, device);
    const auto first = first_of_all(compare(found, *whole, group), group, device);
    if (!first) {
      report.num_compared += 1;
      continue;
    }
    const std::string message = fmt::format(
        "tensor parallelism: {}: {} differs from the unsplit unit's by {:.2g} of its largest element on "
        "tensor rank {}; ",
        what, name_at(found, first->difference.position), first->difference.relative, first->rank);
    if (is_manual) {
      throw UserError(ExitCode::kBadInput, message +
                                               "remove the rule of \"tensor_parallel.policy\" for this unit, and "
                                               "its graph decides how it is split");
    }
    throw Error(ExitCode::kInternal, message +
                                         "please report this fault of dslaunch; a rule \"whole\" of "
                                         "\"tensor_parallel.policy\" keeps a module from being split");
  }
  return report;
}

ProbeReport probe_on_virtual_ranks(const placement::ModelToPlace& model,
                                   const placement::TensorParallelOptions& options) {
  VirtualRanks ranks(options.size);
  std::vector<placement::ModelPlan> plans;
  for (int rank = 0; rank < options.size; ++rank) {
    auto of_rank = options;
    of_rank.rank = rank;
    plans.push_back(plan_placements(model, of_rank));
  }
  Probe probe(plans[0], model.table, model.locations, options.probe);
  std::vector<std::shared_ptr<const Probe::SplitGraphs>> split;
  for (int rank = 0; rank < options.size; ++rank) {
    auto& plan = plans[static_cast<size_t>(rank)];
    for (auto& graph : plan.graphs) edit_graph(graph, ranks.group(rank));
    split.push_back(probe.split_graphs(plan));
  }
  ProbeReport report;
  ranks.run([&](int rank) {
    auto own = probe.run(*split[static_cast<size_t>(rank)], *ranks.group(rank), at::kCPU, !options.rules.empty());
    if (rank == 0) report = std::move(own);
  });
  return report;
}

}  // namespace dslaunch::runtime::model::tensor_parallel
