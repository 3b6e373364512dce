#include "runtime/checkpoint/deepspeed/state_builder.hpp"

#include <ATen/ops/zeros.h>

#include <algorithm>

#include "base/error.hpp"
#include "base/format.hpp"

namespace dslaunch::runtime::deepspeed {

namespace {
constexpr int64_t kCompared = 4096;  // elements of each piece: enough to check the order, not every bit
}

std::string state_name(const std::string& theirs) {
  return theirs == "momentum_buffer" ? "momentum" : theirs;
}

StateBuilder::StateBuilder(ImportedState& out, const ModelStates& model) : out_(out), model_(model) {
  for (const auto& [name, value] : model.module) values_[name] = value;
}

void StateBuilder::refuse(const std::string& what) const {
  throw UserError(ExitCode::kBadInput, fmt::format("the DeepSpeed checkpoint '{}' {}", out_.files.directory, what));
}

const SavedTensor* StateBuilder::find(const std::string& name) const {
  const auto found = index_.find(name);
  return found == index_.end() ? nullptr : &out_.metadata.parameters[found->second];
}

// The dtype is that of the state dict, in which DeepSpeed computed.
SavedTensor& StateBuilder::add(const std::string& name, std::vector<int64_t> shape) {
  if (!index_.emplace(name, out_.metadata.parameters.size()).second) refuse(fmt::format("lists '{}' twice", name));
  auto& tensor = out_.metadata.parameters.emplace_back();
  tensor.name = name;
  tensor.shape = std::move(shape);
  const auto value = values_.find(name);
  tensor.dtype = value == values_.end() ? at::kFloat : value->second.place(name).dtype;
  return tensor;
}

void StateBuilder::add_module(const std::function<bool(const std::string&)>& is_trained, bool has_values) {
  std::map<std::string, std::string> shared(model_.shared.begin(), model_.shared.end());
  using Storage = std::pair<const TorchFile*, std::string>;
  std::map<Storage, std::vector<std::pair<TorchFile::Place, std::string>>> placed;
  for (const auto& [name, value] : model_.module) {
    if (!has_values || !index_.count(name)) continue;
    TorchFile::Place place = value.place(name);
    const Storage storage{value.file, place.storage};
    placed[storage].emplace_back(std::move(place), name);
  }
  for (const auto& [name, value] : model_.module) {
    if (index_.count(name)) continue;
    if (model_.buffers.count(name)) {
      const at::Tensor values = value.read(name);
      add(name, values.sizes().vec()).is_buffer = true;
      out_.metadata.parameters.back().trainable = false;
      add_piece(0, name, "buffer", 0, values.view({-1}));
      continue;
    }
    if (const auto kept = shared.find(name); kept != shared.end() && kept->second != name) continue;  // below
    if (!has_values) {
      out_.unplaced.push_back(name);
      continue;
    }
    TorchFile::Place place = value.place(name);
    auto& others = placed[{value.file, place.storage}];
    const auto same =
        std::find_if(others.begin(), others.end(), [&](const auto& other) { return other.first == place; });
    const bool is_empty = std::find(place.shape.begin(), place.shape.end(), 0) != place.shape.end();
    if (same != others.end() && !is_empty) {
      out_.metadata.parameters[index_.at(same->second)].aliases.push_back(name);
      continue;
    }
    others.emplace_back(std::move(place), name);
    add(name, others.back().first.shape).trainable = is_trained(name);
    if (!is_trained(name)) add_piece(0, name, "frozen", 0, value.read(name).view({-1}));
  }
  for (const auto& [alias, kept] : model_.shared) {
    const auto found = index_.find(kept);
    if (found == index_.end())
      refuse(fmt::format("is damaged: '{}' is shared with '{}', which there is not", alias, kept));
    auto& aliases = out_.metadata.parameters[found->second].aliases;
    if (alias != kept && std::find(aliases.begin(), aliases.end(), alias) == aliases.end()) aliases.push_back(alias);
  }
}

void StateBuilder::add_trainable(const NamedShape& parameter) {
  add(parameter.name, parameter.shape);
}

void StateBuilder::add_frozen(const NamedShape& parameter) {
  add(parameter.name, parameter.shape).trainable = false;
}

void StateBuilder::add_piece(int rank, const std::string& name, const std::string& state, int64_t begin,
                             const at::Tensor& values) {
  const SavedTensor* parameter = find(name);
  if (!parameter)
    refuse(fmt::format("is damaged: it holds '{}' of '{}', which its model states do not list", state, name));
  if (begin + values.numel() > parameter->numel()) {
    refuse(fmt::format("is damaged: '{}' of '{}' has elements {} to {} of {}", state, name, begin,
                       begin + values.numel() - 1, parameter->numel()));
  }
  num_elements_[{name, state}] += values.numel();
  if (values.numel() > 0) out_.shards[static_cast<size_t>(rank)].push_back({name, state, begin, values});
}

// Whether the first elements of a part of a master are, in the model's type, those of the state dict.
bool StateBuilder::is_rounded_value(const std::string& name, int64_t begin, const at::Tensor& master) const {
  const auto value = values_.find(name);
  if (value == values_.end()) return true;
  const at::Tensor computed = value->second.read(name).view({-1});
  return master.to(computed.scalar_type()).equal(computed.narrow(0, begin, master.numel()));
}

void StateBuilder::compare_replica(const std::string& name, int64_t begin, const at::Tensor& values) {
  const SavedTensor* parameter = find(name);
  if (!parameter || begin + values.numel() > parameter->numel() ||
      !is_rounded_value(name, begin, values.narrow(0, 0, std::min(values.numel(), kCompared)))) {
    different_replicas_.insert(name);
  }
}

void StateBuilder::compare_masters_with_module() {
  std::set<std::string> different;
  for (const auto& shard : out_.shards) {
    for (const auto& piece : shard) {
      if (piece.state != "master" || !values_.count(piece.parameter)) continue;
      const at::Tensor values = piece.values.read(0, std::min(piece.values.numel(), kCompared));
      if (!is_rounded_value(piece.parameter, piece.begin, values)) different.insert(piece.parameter);
    }
  }
  if (!different_replicas_.empty()) {
    out_.notes.push_back(
        fmt::format("CHECK THIS: pipeline stages have different masters of {} tied parameters (the first "
                    "is {}); those of the first stage are imported",
                    different_replicas_.size(), *different_replicas_.begin()));
  }
  if (different.empty()) return;
  out_.notes.push_back(
      fmt::format("CHECK THIS: the fp32 masters of {} parameters (the first is {}) are not, rounded, the "
                  "weights that the model computed with; compare the first losses with DeepSpeed's",
                  different.size(), *different.begin()));
}

void StateBuilder::masters_from_module() {
  for (const auto& tensor : out_.metadata.parameters) {
    if (!tensor.trainable || num_elements_.count({tensor.name, "master"})) continue;
    const auto value = values_.find(tensor.name);
    if (value == values_.end()) refuse(fmt::format("has no weights of '{}'", tensor.name));
    const at::Tensor values = value->second.read(tensor.name);
    if (values.numel() != tensor.numel())
      refuse(fmt::format("has no weights of '{}': the optimizer states are missing", tensor.name));
    add_piece(0, tensor.name, "master", 0, values.view({-1}));
  }
}

// A parameter that never had a gradient has no moments in torch's optimizers; its moments would start at zero.
void StateBuilder::fill_missing_states() {
  for (const auto& state : out_.optimizer_states) {
    std::vector<std::string> lacking;
    for (const auto& tensor : out_.metadata.parameters) {
      if (tensor.trainable && !num_elements_.count({tensor.name, state})) lacking.push_back(tensor.name);
    }
    for (const auto& name : lacking) add_piece(0, name, state, 0, at::zeros({find(name)->numel()}, at::kFloat));
    if (lacking.empty()) continue;
    out_.notes.push_back(fmt::format("'{}' starts at zero for what the optimizer has not updated yet: {}", state,
                                     fmt::join(lacking, ", ")));
  }
}

void StateBuilder::finish() {
  fill_missing_states();
  std::set<std::string> states = out_.optimizer_states;
  states.insert("master");
  for (const auto& tensor : out_.metadata.parameters) {
    const std::string own = tensor.is_buffer ? "buffer" : "frozen";
    for (const auto& state : tensor.trainable ? states : std::set<std::string>{own}) {
      const auto found = num_elements_.find({tensor.name, state});
      const int64_t have = found == num_elements_.end() ? 0 : found->second;
      if (have != tensor.numel()) {
        refuse(fmt::format("is not complete: it holds {} of the {} elements of '{}' of parameter '{}'", have,
                           tensor.numel(), state, tensor.name));
      }
    }
  }
}

}  // namespace dslaunch::runtime::deepspeed
