// Stage 0: whole weights, and the optimizer's state dict, which numbers parameters instead of naming them. The mapping
// follows from the order and the shapes; if these are ambiguous, the moments are left out and the user is notified.
// Of a pipeline each stage has such a dict, and their groups joined in the order of the stages are those of the model.
#include <algorithm>
#include <map>
#include <optional>

#include "base/format.hpp"
#include "runtime/checkpoint/deepspeed/model_fit.hpp"
#include "runtime/checkpoint/deepspeed/state_builder.hpp"
#include "runtime/state/saved_scalars.hpp"
#include "runtime/state/tensor_extent.hpp"

namespace dslaunch::runtime::deepspeed {
namespace {

using pickle::Value;
using Shape = std::vector<int64_t>;

struct Candidate {
  std::string name;
  Shape shape;
};

// A parameter group of the optimizer: one slot per parameter, or one flat tensor over all of them.
struct Group {
  std::vector<std::optional<Shape>> slots;  // empty: it has no state yet, so any shape fits
  std::optional<int64_t> flat_numel;
  std::vector<std::string> given_names;  // torch keeps them if it was given named parameters
};

bool fits(const std::optional<Shape>& slot, const Candidate& candidate) {
  return !slot || *slot == candidate.shape;
}

bool fits(const Group& group, const std::vector<Candidate>& candidates) {
  if (group.flat_numel) {
    int64_t sum = 0;
    for (const auto& candidate : candidates) {
      const auto numel = numel_of(candidate.shape);
      if (!numel || __builtin_add_overflow(sum, *numel, &sum)) return false;
    }
    return sum == *group.flat_numel;
  }
  return group.slots.size() == candidates.size() &&
         std::equal(group.slots.begin(), group.slots.end(), candidates.begin(),
                    [](const auto& slot, const auto& candidate) { return fits(slot, candidate); });
}

// The slots as a subsequence of the candidates, if it is unique: then the leftmost match equals the rightmost match.
std::optional<std::vector<Candidate>> only_subsequence(const Group& group, const std::vector<Candidate>& candidates) {
  auto embed = [&](auto slot, auto slots_end, auto candidate, auto end) -> std::optional<std::vector<Candidate>> {
    std::vector<Candidate> chosen;
    for (; slot != slots_end; ++slot) {
      while (candidate != end && !fits(*slot, *candidate)) ++candidate;
      if (candidate == end) return std::nullopt;
      chosen.push_back(*candidate++);
    }
    return chosen;
  };
  auto left = embed(group.slots.begin(), group.slots.end(), candidates.begin(), candidates.end());
  auto right = embed(group.slots.rbegin(), group.slots.rend(), candidates.rbegin(), candidates.rend());
  if (group.flat_numel || !left || !right) return std::nullopt;
  std::reverse(right->begin(), right->end());
  for (size_t i = 0; i < left->size(); ++i) {
    if ((*left)[i].name != (*right)[i].name) return std::nullopt;
  }
  return left;
}

using Assignment = std::vector<std::vector<Candidate>>;  // by group, in the order of its slots

std::optional<Assignment> assign(const std::vector<Group>& groups, const std::vector<Candidate>& candidates,
                                 std::vector<std::string>& notes) {
  if (groups.size() == 1) {
    if (fits(groups[0], candidates)) return Assignment{candidates};
    if (auto only = only_subsequence(groups[0], candidates)) return Assignment{*only};
    return std::nullopt;
  }
  // The groups are parameters with and without weight decay: matrices and the rest.
  if (groups.size() == 2) {
    Assignment split(2);
    for (const auto& candidate : candidates) split[candidate.shape.size() > 1 ? 0 : 1].push_back(candidate);
    for (int turn = 0; turn < 2; ++turn, std::swap(split[0], split[1])) {
      if (!fits(groups[0], split[0]) || !fits(groups[1], split[1])) continue;
      notes.push_back(
          fmt::format("the optimizer has two groups and no names in them; their shapes say that group {} holds "
                      "what has two dimensions or more, and group {} the rest",
                      turn, 1 - turn));
      return split;
    }
  }
  return std::nullopt;
}

std::optional<Assignment> assign_given(const std::vector<Group>& groups, const std::vector<Candidate>& candidates) {
  Assignment out;
  for (const auto& group : groups) {
    auto& chosen = out.emplace_back();
    for (const auto& name : group.given_names) {
      const auto found =
          std::find_if(candidates.begin(), candidates.end(), [&](const auto& c) { return c.name == name; });
      if (found == candidates.end()) return std::nullopt;
      chosen.push_back(*found);
    }
    if (!fits(group, chosen)) return std::nullopt;
  }
  return out;
}

// The optimizer's part of the file, with or without the wrapper that fp16 adds.
class OptimizerStates {
 public:
  OptimizerStates(const TorchFile& file, const Value& optimizer) : file_(file), dict_(&optimizer) {
    if (const Value* wrapped = optimizer.find("optimizer_state_dict")) {
      dict_ = wrapped;
      flat_masters_ = optimizer.find("fp32_groups_flat");
      masters_ = optimizer.find("fp32_groups");
    }
    state_ = dict_->find("state");
    groups_ = dict_->find("param_groups");
  }

  bool is_known() const { return state_ && groups_; }

  std::vector<Group> groups() const {
    std::vector<Group> out;
    for (size_t g = 0; g < groups_->items.size(); ++g) {
      Group& group = out.emplace_back();
      if (flat_masters_ && g < flat_masters_->items.size()) {
        group.flat_numel = file_.tensor(*flat_masters_->items[g], "fp32_groups_flat").numel();
      }
      if (const Value* names = groups_->items[g]->find("param_names")) {
        for (const Value* name : names->items) group.given_names.push_back(name->text);
      }
      for (size_t i = 0; i < indices(g).size(); ++i) group.slots.push_back(shape_at(g, i));
    }
    return out;
  }

  // Bias correction uses the optimizer's own count: DeepSpeed's fp16 wrapper makes the optimizer take a step on zero
  // gradients when it is created, which the schedule does not count.
  void note_own_steps(std::map<std::string, double>& scalars) const {
    const auto steps = own_steps();
    double& applied = scalars.at("applied_steps");
    if (!steps || *steps == applied) return;
    if (!is_count(*steps, 0)) {
      refuse_file(file_, fmt::format("is damaged: 'step' of its optimizer is {}", *steps));
    }
    scalars["schedule_offset"] = applied - *steps;
    applied = *steps;
  }

  void read(const Assignment& assignment, StateBuilder& builder, ImportedState& out) const {
    for (size_t g = 0; g < assignment.size(); ++g) {
      if (flat_masters_) {
        read_flat(g, assignment[g], builder, out);
        continue;
      }
      for (size_t i = 0; i < assignment[g].size(); ++i) {
        const std::string& name = assignment[g][i].name;
        if (const Value* master = master_at(g, i))
          builder.add_piece(0, name, "master", 0, file_.tensor(*master, name).view({-1}));
        const Value* states = find_index(*state_, indices(g)[i]);
        if (!states) continue;
        for (const auto& [key, value] : states->entries) {
          if (!is_moment(key->text, *value, assignment[g][i].shape)) continue;
          out.optimizer_states.insert(state_name(key->text));
          builder.add_piece(0, name, state_name(key->text), 0, file_.tensor(*value, name).view({-1}));
        }
        add_kept_ratio(*states, name, builder);
      }
    }
  }

 private:
  // torch's optimizers store the count with each parameter, DeepSpeed's fused ones with each group.
  std::optional<double> own_steps() const {
    for (const Value* group : groups_->items) {
      if (const Value* steps = group->find("step")) return steps->as_number();
    }
    for (const auto& [index, states] : state_->entries) {
      const Value* steps = states->find("step");
      if (steps && TorchFile::is_tensor(*steps)) return file_.tensor(*steps, "step").item<double>();
      if (steps) return steps->as_number();
    }
    return std::nullopt;
  }

  std::vector<int64_t> indices(size_t group) const {
    std::vector<int64_t> out;
    if (const Value* parameters = groups_->items[group]->find("params")) {
      for (const Value* index : parameters->items) out.push_back(index->as_integer().value_or(-1));
    }
    return out;
  }
  const Value* master_at(size_t group, size_t slot) const {
    if (!masters_ || group >= masters_->items.size() || slot >= masters_->items[group]->items.size()) return nullptr;
    return masters_->items[group]->items[slot];
  }
  // What 1-bit optimizers have exchanged and lost is of one rank, and starts again.
  static bool is_of_exchanges(const std::string& name) {
    return name == "worker_error" || name == "server_error" || name == "momentum_accumulator";
  }
  // OnebitLamb's numbers of a parameter; the last one comes with its first exchange.
  static void add_kept_ratio(const Value& states, const std::string& parameter, StateBuilder& builder) {
    if (!states.find("lamb_coeff_freeze")) return;
    for (const char* name : {"lamb_coeff_freeze", "last_factor", "scaling_coeff"}) {
      const Value* value = states.find(name);
      const double number = value ? value->as_number().value_or(0) : 0;
      builder.add_piece(0, parameter, name, 0, at::full({1}, number, at::kFloat));
    }
  }
  bool is_moment(const std::string& name, const Value& value, const Shape& shape) const {
    if (name == "step" || is_of_exchanges(name) || !TorchFile::is_tensor(value)) return false;
    const auto place = file_.place(value, name);
    return numel_of(place.shape) == numel_of(shape);
  }
  std::optional<Shape> shape_at(size_t group, size_t slot) const {
    if (const Value* master = master_at(group, slot)) return file_.place(*master, "fp32_groups").shape;
    const Value* states = find_index(*state_, indices(group)[slot]);
    if (!states) return std::nullopt;
    for (const auto& [key, value] : states->entries) {
      if (key->text != "step" && TorchFile::is_tensor(*value)) return file_.place(*value, key->text).shape;
    }
    return std::nullopt;
  }

  void read_flat(size_t group, const std::vector<Candidate>& members, StateBuilder& builder, ImportedState& out) const {
    const at::Tensor master = file_.tensor(*flat_masters_->items[group], "fp32_groups_flat").view({-1});
    std::vector<std::pair<std::string, at::Tensor>> flats{{"master", master}};
    const Value* states = indices(group).empty() ? nullptr : find_index(*state_, indices(group)[0]);
    if (states) {
      for (const auto& [key, value] : states->entries) {
        if (!is_moment(key->text, *value, Shape{master.numel()})) continue;
        out.optimizer_states.insert(state_name(key->text));
        flats.emplace_back(state_name(key->text), file_.tensor(*value, key->text).view({-1}));
      }
    }
    for (const auto& [state, flat] : flats) {
      int64_t offset = 0;
      for (const auto& member : members) {
        const int64_t numel = numel_of(member.shape).value();  // checked by fits()
        builder.add_piece(0, member.name, state, 0, flat.narrow(0, offset, numel));
        offset += numel;
      }
    }
  }

  const TorchFile& file_;
  const Value* dict_;
  const Value* state_ = nullptr;
  const Value* groups_ = nullptr;
  const Value* masters_ = nullptr;
  const Value* flat_masters_ = nullptr;
};

std::set<std::string> frozen_in_model(const ModelStates& model, const ReadOptions& options) {
  std::set<std::string> out;
  if (!options.model) return out;
  std::vector<std::string> names;
  for (const auto& [name, value] : model.module) names.push_back(name);
  const Renaming rename = find_renaming(names, *options.model);
  for (const auto& name : names) {
    const SavedTensor* tensor = find_tensor(*options.model, rename(name));
    if (tensor && !tensor->trainable) out.insert(name);
  }
  return out;
}

// Parameters of the state dict, each once, that the optimizer may hold.
std::vector<Candidate> candidates_of(const ModelStates& model, const ReadOptions& options) {
  std::vector<Candidate> out;
  std::vector<std::pair<const TorchFile*, TorchFile::Place>> seen;
  const std::set<std::string> frozen = frozen_in_model(model, options);
  for (const auto& [name, value] : model.module) {
    if (model.buffers.count(name)) continue;
    if (frozen.count(name)) continue;
    const std::pair placed{value.file, value.place(name)};
    const Shape& shape = placed.second.shape;
    const bool has_elements = numel_of(shape) > 0;
    if (has_elements && std::find(seen.begin(), seen.end(), placed) != seen.end()) continue;
    out.push_back({name, shape});
    seen.push_back(placed);
  }
  return out;
}

// The groups of all stages, each joined in their order.
std::vector<Group> joined(const std::vector<OptimizerStates>& stages) {
  std::vector<Group> out;
  for (const auto& stage : stages) {
    const auto groups = stage.groups();
    out.resize(std::max(out.size(), groups.size()));
    for (size_t g = 0; g < groups.size(); ++g) {
      out[g].slots.insert(out[g].slots.end(), groups[g].slots.begin(), groups[g].slots.end());
      out[g].given_names.insert(out[g].given_names.end(), groups[g].given_names.begin(), groups[g].given_names.end());
      if (groups[g].flat_numel) out[g].flat_numel = out[g].flat_numel.value_or(0) + *groups[g].flat_numel;
    }
  }
  return out;
}

// What of it belongs to each stage; nothing if a stage's flat tensor would end inside a parameter.
std::optional<std::vector<Assignment>> split(const Assignment& whole, const std::vector<OptimizerStates>& stages) {
  std::vector<Assignment> out;
  std::vector<size_t> taken(whole.size());
  for (const auto& stage : stages) {
    Assignment& own = out.emplace_back();
    const auto groups = stage.groups();
    for (size_t g = 0; g < groups.size(); ++g) {
      std::vector<Candidate> members;
      int64_t numel = 0;
      for (; taken[g] < whole[g].size(); ++taken[g]) {
        const Candidate& next = whole[g][taken[g]];
        const int64_t next_numel = numel_of(next.shape).value_or(0);
        const bool is_full = groups[g].flat_numel ? numel == *groups[g].flat_numel && next_numel > 0
                                                  : members.size() == groups[g].slots.size();
        if (is_full) break;
        members.push_back(next);
        numel += next_numel;
      }
      if (!fits(groups[g], members)) return std::nullopt;
      own.push_back(std::move(members));
    }
  }
  return out;
}

std::optional<std::vector<Assignment>> assign_stages(const std::vector<OptimizerStates>& stages,
                                                     const std::vector<Candidate>& candidates,
                                                     std::vector<std::string>& notes) {
  const auto groups = joined(stages);
  const bool named = std::any_of(groups.begin(), groups.end(), [](const auto& g) { return !g.given_names.empty(); });
  std::optional<Assignment> assignment;
  if (named) assignment = assign_given(groups, candidates);
  if (!assignment) assignment = assign(groups, candidates, notes);
  if (!assignment) return std::nullopt;
  return split(*assignment, stages);
}

std::vector<OptimizerStates> known_states(const std::vector<OptimizerPart>& optimizers) {
  std::vector<OptimizerStates> out;
  for (const auto& [file, state] : optimizers) {
    if (state) out.emplace_back(*file, *state);
    if (!state || !out.back().is_known()) return {};
  }
  return out;
}

}  // namespace

void read_unsharded(const std::vector<OptimizerPart>& optimizers, const ModelStates& model, const ReadOptions& options,
                    StateBuilder& builder, ImportedState& out) {
  const auto candidates = candidates_of(model, options);
  const auto stages = known_states(optimizers);
  std::optional<std::vector<Assignment>> assignments;
  if (!stages.empty()) assignments = assign_stages(stages, candidates, out.notes);
  std::set<std::string> trained;
  if (assignments) {
    for (const auto& assignment : *assignments) {
      for (const auto& group : assignment) {
        for (const auto& member : group) trained.insert(member.name);
      }
    }
  } else {
    for (const auto& candidate : candidates) trained.insert(candidate.name);
    const bool has_state = std::any_of(optimizers.begin(), optimizers.end(), [](const auto& o) { return o.state; });
    out.notes.emplace_back(
        !has_state
            ? "it holds no optimizer state: only weights are imported"
            : "its optimizer state names no parameters, and their order and shapes do not decide which is which: only "
              "weights are imported; give --model so that frozen parameters are known");
  }
  builder.add_module([&](const std::string& name) { return trained.count(name) > 0; }, /*has_values=*/true);
  if (!assignments) return;
  stages.front().note_own_steps(out.metadata.scalars);
  for (size_t stage = 0; stage < stages.size(); ++stage) stages[stage].read((*assignments)[stage], builder, out);
}

}  // namespace dslaunch::runtime::deepspeed
