// Stage 3: every parameter is padded to a multiple of the ranks and split into equal slices; a rank's slices follow
// each other through its flat sub-groups, in the order of the shapes.
#include <algorithm>

#include "base/format.hpp"
#include "runtime/checkpoint/deepspeed/state_builder.hpp"

namespace dslaunch::runtime::deepspeed {
namespace {

using pickle::Value;

// One kind of state of one rank: its flat sub-groups read as one sequence.
class FlatSequence {
 public:
  explicit FlatSequence(std::vector<at::Tensor> groups) : groups_(std::move(groups)) {}

  // The next `count` elements, in as many parts as the sub-groups split them into; fewer when the sequence ends.
  std::vector<at::Tensor> take(int64_t count) {
    std::vector<at::Tensor> parts;
    while (count > 0 && group_ < groups_.size()) {
      const int64_t part = std::min(count, groups_[group_].numel() - offset_);
      if (part > 0) parts.push_back(groups_[group_].narrow(0, offset_, part));
      offset_ += part;
      count -= part;
      if (offset_ == groups_[group_].numel()) {
        ++group_;
        offset_ = 0;
      }
    }
    return parts;
  }
  int64_t numel_left() const {
    int64_t left = -offset_;
    for (size_t i = group_; i < groups_.size(); ++i) left += groups_[i].numel();
    return left;
  }

 private:
  std::vector<at::Tensor> groups_;
  size_t group_ = 0;
  int64_t offset_ = 0;
};

class Rank {
 public:
  Rank(const TorchFile& file, int rank, int num_ranks, StateBuilder& builder)
      : file_(file), rank_(rank), num_ranks_(num_ranks), builder_(builder) {
    inner_ = file.root().find("optimizer_state_dict");
    const Value* masters = inner_ ? inner_->find("fp32_flat_groups") : nullptr;
    if (!masters) refuse("is not an optimizer state of ZeRO stage 3: it has no 'fp32_flat_groups'");
    const Value* count = inner_->find("partition_count");
    if (count && count->as_integer().value_or(num_ranks) != num_ranks) {
      refuse(fmt::format("cuts parameters into {} parts, but the files of {} ranks are there", *count->as_integer(),
                         num_ranks));
    }
    for (const Value* group : masters->items) {
      masters_.push_back(file_.tensor(*group, "fp32_flat_groups").view({-1}));
    }
  }

  std::set<std::string> state_names() const {
    std::set<std::string> names;
    for (size_t g = 0; g < masters_.size(); ++g) {
      if (const Value* dict = states_of(g)) {
        for (const auto& [name, value] : dict->entries) {
          if (is_state(name->text, *value, masters_[g].numel())) names.insert(name->text);
        }
      }
    }
    return names;
  }

  void read(const std::vector<NamedShape>& parameters, const std::set<std::string>& states) {
    read_state(parameters, "master", masters_);
    for (const auto& state : states) {
      std::vector<at::Tensor> groups;
      for (size_t g = 0; g < masters_.size(); ++g) {
        const Value* dict = states_of(g);
        const Value* value = dict ? dict->find(state) : nullptr;
        if (masters_[g].numel() > 0 && (!value || !is_state(state, *value, masters_[g].numel()))) {
          refuse(fmt::format("is damaged: sub-group {} has no '{}'", g, state));
        }
        if (value) groups.push_back(file_.tensor(*value, state).view({-1}));
      }
      read_state(parameters, state_name(state), groups);
    }
  }

 private:
  [[noreturn]] void refuse(const std::string& what) const { refuse_file(file_, what); }

  const Value* states_of(size_t group) const {
    const Value* optimizer = inner_->find("optimizer_state_dict");
    const Value* state = optimizer ? optimizer->find("state") : nullptr;
    return state ? find_index(*state, static_cast<int64_t>(group)) : nullptr;
  }
  bool is_state(const std::string& name, const Value& value, int64_t numel) const {
    if (name == "step" || !TorchFile::is_tensor(value)) return false;
    const auto place = file_.place(value, name);
    return place.shape == std::vector<int64_t>{numel};
  }

  void read_state(const std::vector<NamedShape>& parameters, const std::string& state, std::vector<at::Tensor> groups) {
    FlatSequence sequence(std::move(groups));
    for (const auto& parameter : parameters) {
      const int64_t slice = (parameter.numel + num_ranks_ - 1) / num_ranks_;
      int64_t begin = std::min(rank_ * slice, parameter.numel), taken = 0;
      for (const auto& part : sequence.take(slice)) {
        const int64_t count = std::min(part.numel(), parameter.numel - begin);  // the rest is padding
        if (count > 0) builder_.add_piece(rank_, parameter.name, state, begin, part.narrow(0, 0, count));
        begin += count;
        taken += part.numel();
      }
      if (taken != slice) refuse(fmt::format("is not complete: '{}' ends within '{}'", state, parameter.name));
    }
    if (sequence.numel_left() != 0) {
      refuse(fmt::format("holds {} elements of '{}' more than its model states list", sequence.numel_left(), state));
    }
  }

  const TorchFile& file_;
  const int rank_, num_ranks_;
  StateBuilder& builder_;
  const Value* inner_ = nullptr;
  std::vector<at::Tensor> masters_;
};

// A rank's slice of every frozen parameter, the last one padded.
void read_frozen(const TorchFile& file, const ModelStates& model, int rank, int num_ranks, StateBuilder& builder) {
  for (const auto& parameter : model.frozen) {
    const auto found = model.frozen_fragments.find(parameter.name);
    if (found == model.frozen_fragments.end()) continue;  // finish() reports missing ones
    const int64_t slice = (parameter.numel + num_ranks - 1) / num_ranks;
    const int64_t begin = std::min(rank * slice, parameter.numel);
    const at::Tensor values = file.tensor(*found->second, parameter.name).view({-1});
    builder.add_piece(rank, parameter.name, "frozen", begin,
                      values.narrow(0, 0, std::min(values.numel(), std::min(slice, parameter.numel - begin))));
  }
}

}  // namespace

void read_stage3(const std::vector<TorchFile>& model_files, const ModelStates& model,
                 const std::vector<TorchFile>& optim_files, StateBuilder& builder, ImportedState& out) {
  const auto num_ranks = static_cast<int>(optim_files.size());
  if (model_files.size() != optim_files.size()) {
    builder.refuse(fmt::format("is not complete: {} ranks have model states, {} have optimizer states",
                               model_files.size(), num_ranks));
  }
  const auto trainable = model.all_trainable();
  for (int rank = 0; rank < num_ranks; ++rank) {
    const auto index = static_cast<size_t>(rank);
    Rank reader(optim_files[index], rank, num_ranks, builder);
    const auto states = reader.state_names();
    for (const auto& state : states) out.optimizer_states.insert(state_name(state));
    reader.read(trainable, states);
    if (!model.frozen.empty()) {
      read_frozen(model_files[index], rank == 0 ? model : read_model_states(model_files[index]), rank, num_ranks,
                  builder);
    }
  }
}

}  // namespace dslaunch::runtime::deepspeed
