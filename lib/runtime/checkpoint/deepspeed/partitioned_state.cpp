// Stages 1 and 2 of ZeRO: every parameter group is one flat sequence in the order of its shapes, split into equal
// parts, one per rank; padding is at its end only and is not saved with the masters. (DeepSpeed's param_slice_mappings
// contain the same, but not with round_robin_gradients, where they keep the previous order.)
#include <algorithm>

#include "base/format.hpp"
#include "runtime/checkpoint/deepspeed/state_builder.hpp"

namespace dslaunch::runtime::deepspeed {
namespace {

using pickle::Kind;
using pickle::Value;

class Partition {
 public:
  Partition(const TorchFile& file, int shard, StateBuilder& builder, ImportedState& out)
      : file_(file),
        shard_(shard),
        builder_(builder),
        out_(out),
        inner_(&require(file.root(), "optimizer_state_dict")) {}

  // `begins`: by group, the number of elements in the ranks before this one; advanced past this rank's elements.
  void read(size_t num_ranks, const std::vector<std::vector<NamedShape>>& shapes, std::vector<int64_t>& begins) {
    require_world(num_ranks);
    const Value& groups = require(*inner_, "single_partition_of_fp32_groups");
    if (groups.items.size() != shapes.size()) {
      refuse(fmt::format("has {} parameter groups, the model states list {}", groups.items.size(), shapes.size()));
    }
    for (size_t g = 0; g < shapes.size(); ++g) {
      const at::Tensor master = without_padding(file_.tensor(*groups.items[g], fmt::format("fp32 group {}", g)), g);
      auto states = states_of(g, master.numel());
      states.emplace_back("master", master);
      for (const auto& [state, values] : states)
        read_group(shapes[g], state, values.narrow(0, 0, master.numel()), begins[g]);
      begins[g] += master.numel();
    }
  }

 private:
  [[noreturn]] void refuse(const std::string& what) const { refuse_file(file_, what); }
  const Value& require(const Value& dict, const std::string& key) const {
    const Value* found = dict.find(key);
    if (!found) refuse(fmt::format("is not an optimizer state of ZeRO stage 1 or 2: it has no '{}'", key));
    return *found;
  }

  // DeepSpeed's own optimizer for bf16, which does not name a stage, saves the padding at the end of a group.
  at::Tensor without_padding(const at::Tensor& master, size_t group) const {
    const Value* paddings = inner_->find("zero_stage") ? nullptr : inner_->find("group_paddings");
    if (!paddings || group >= paddings->items.size()) return master.view({-1});
    const int64_t padding = paddings->items[group]->as_integer().value_or(-1);
    if (padding < 0 || padding > master.numel())
      refuse(fmt::format("is damaged: the padding of group {} is {}", group, padding));
    return master.view({-1}).narrow(0, 0, master.numel() - padding);
  }

  void require_world(size_t num_ranks) const {
    const Value* counts = inner_->find("partition_count");
    if (!counts) return;
    for (const Value* count : counts->items) {
      if (count->as_integer() == static_cast<int64_t>(num_ranks)) continue;
      refuse(fmt::format("is of {} ranks, but the files of {} are there", count->as_integer().value_or(-1), num_ranks));
    }
  }

  // `values` are the elements of the group's flat sequence starting at `begin`.
  void read_group(const std::vector<NamedShape>& shapes, const std::string& state, const at::Tensor& values,
                  int64_t begin) {
    const int64_t end = begin + values.numel();
    int64_t at = 0;  // start of the parameter in the sequence
    for (const auto& parameter : shapes) {
      const int64_t first = std::max(begin, at), last = std::min(end, at + parameter.numel);
      if (first < last && parameter.is_replica) {
        if (state == "master")
          builder_.compare_replica(parameter.name, first - at, values.narrow(0, first - begin, last - first));
      } else if (first < last) {
        builder_.add_piece(shard_, parameter.name, state, first - at, values.narrow(0, first - begin, last - first));
      }
      at += parameter.numel;
    }
    if (end > at)
      refuse(
          fmt::format("holds {} elements of '{}' more than its model states list", end - std::max(at, begin), state));
  }

  // The optimizer's flat tensors over this partition; they may exceed the master by the padding at the end.
  std::vector<std::pair<std::string, at::Tensor>> states_of(size_t group, int64_t numel) const {
    std::vector<std::pair<std::string, at::Tensor>> out;
    const Value* base = inner_->find("base_optimizer_state");
    if (!base) return out;
    // A list of groups if the checkpoint is elastic, otherwise torch's dict.
    const Value* dict = nullptr;
    if (base->is(Kind::kList) && group < base->items.size()) dict = base->items[group];
    if (const Value* state = base->find("state")) dict = find_index(*state, static_cast<int64_t>(group));
    if (!dict) return out;
    for (const auto& [name, value] : dict->entries) {
      if (!TorchFile::is_tensor(*value)) continue;
      const auto place = file_.place(*value, name->text);
      if (place.shape.size() != 1 || place.shape[0] < numel || name->text == "step") continue;
      out.emplace_back(state_name(name->text), file_.tensor(*value, name->text));
      out_.optimizer_states.insert(out.back().first);
    }
    return out;
  }

  const TorchFile& file_;
  const int shard_;
  StateBuilder& builder_;
  ImportedState& out_;
  const Value* inner_;
};

}  // namespace

void read_partitioned(const ModelStates& model, const std::vector<TorchFile>& optim_files, size_t first_shard,
                      StateBuilder& builder, ImportedState& out) {
  std::vector<int64_t> begins(model.trainable_groups.size());
  for (size_t rank = 0; rank < optim_files.size(); ++rank) {
    Partition(optim_files[rank], static_cast<int>(first_shard + rank), builder, out)
        .read(optim_files.size(), model.trainable_groups, begins);
  }
}

}  // namespace dslaunch::runtime::deepspeed
