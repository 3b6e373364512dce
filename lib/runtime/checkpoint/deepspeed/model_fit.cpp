#include "runtime/checkpoint/deepspeed/model_fit.hpp"

#include <ATen/ops/zeros.h>

#include <algorithm>
#include <map>
#include <set>

#include "base/error.hpp"
#include "base/format.hpp"
#include "base/nearest_name.hpp"
#include "runtime/checkpoint/deepspeed/deepspeed_checkpoint.hpp"
#include "runtime/checkpoint/deepspeed/layer_match.hpp"
#include "runtime/checkpoint/name_match.hpp"
#include "runtime/state/tensor_text.hpp"

namespace dslaunch::runtime::deepspeed {
namespace {

constexpr size_t kMaxListed = 20;

std::vector<std::string> all_names(const std::vector<SavedTensor>& tensors) {
  std::vector<std::string> names;
  for (const auto& tensor : tensors) {
    for (auto& name : tensor.all_names()) names.push_back(std::move(name));
  }
  return names;
}

bool all_start_with(const std::vector<std::string>& names, const std::string& prefix) {
  return !names.empty() && std::all_of(names.begin(), names.end(), [&](const auto& name) {
    return name.size() > prefix.size() && name.compare(0, prefix.size(), prefix) == 0;
  });
}

// Prefixes that all names share, from none to the longest.
std::vector<std::string> common_prefixes(const std::vector<std::string>& names) {
  std::vector<std::string> prefixes{""};
  if (names.empty()) return prefixes;
  for (size_t dot = names[0].find('.'); dot != std::string::npos; dot = names[0].find('.', dot + 1)) {
    const std::string prefix = names[0].substr(0, dot + 1);
    if (!all_start_with(names, prefix)) break;
    prefixes.push_back(prefix);
  }
  return prefixes;
}

std::string wrappers_prefix(const std::vector<std::string>& names) {
  std::string prefix;
  for (bool grown = true; grown;) {
    grown = false;
    for (const char* wrapper : {"module.", "_orig_mod."}) {
      if (!all_start_with(names, prefix + wrapper)) continue;
      prefix += wrapper;
      grown = true;
    }
  }
  return prefix;
}

std::string list(const std::vector<std::string>& lines) {
  std::string out;
  for (size_t i = 0; i < std::min(lines.size(), kMaxListed); ++i) out += "\n  " + lines[i];
  if (lines.size() > kMaxListed) out += fmt::format("\n  and {} more", lines.size() - kMaxListed);
  return out;
}

// One mapping to a model, from start to end.
class Fitting {
 public:
  Fitting(ImportedState& state, const std::vector<SavedTensor>& model) : state_(state), model_(model) {
    use_names(find_renaming(all_names(state.metadata.parameters), model));
    if (!state.files.is_pipeline() || has_all_parameters()) return;
    const auto layers = match_layers(state.metadata.parameters, model);
    if (!layers) return;
    use_names([layers = *layers](const std::string& name) { return rename_layer(layers, name); });
    std::vector<std::string> pairs;
    for (const auto& [layer, module] : *layers) pairs.push_back(fmt::format("{} is {}", layer, module));
    state.notes.push_back(
        fmt::format("its layers are the model's modules by their order and shapes: {}", fmt::join(pairs, ", ")));
  }

  void run(const std::function<at::Tensor(const std::string&)>& value_of) {
    for (const auto& tensor : model_) match(tensor);
    refuse_differences();
    move_pieces();
    for (const SavedTensor* tensor : kept_) {
      add(0, *tensor, tensor->is_buffer ? "buffer" : "frozen", 0, value_of(tensor->name).reshape({-1}));
    }
    note_differences();
    state_.metadata.parameters = model_;
    state_.shards = std::move(shards_);
  }

 private:
  void use_names(std::function<std::string(const std::string&)> rename) {
    rename_ = std::move(rename);
    theirs_.clear();
    for (const auto& tensor : state_.metadata.parameters) {
      for (const auto& name : tensor.all_names()) theirs_[rename_(name)] = &tensor;
    }
  }

  // Whether each trained parameter of the model is there under its name, with its shape.
  bool has_all_parameters() const {
    return std::all_of(model_.begin(), model_.end(), [&](const SavedTensor& tensor) {
      if (tensor.is_buffer || !tensor.trainable) return true;
      const SavedTensor* found = find(tensor);
      return found && found->shape == tensor.shape;
    });
  }

  const SavedTensor* find(const SavedTensor& tensor) const {
    const SavedTensor* found = nullptr;
    for (const auto& name : tensor.all_names()) {
      const auto theirs = theirs_.find(name);
      if (theirs != theirs_.end() && (!found || name == tensor.name)) found = theirs->second;
    }
    return found;
  }

  void match(const SavedTensor& tensor) {
    const SavedTensor* found = find(tensor);
    if (!found) {
      (tensor.trainable && !tensor.is_buffer ? missing_ : kept_).push_back(&tensor);
    } else if (found->shape != tensor.shape) {
      shapes_.push_back(fmt::format("'{}' has the shape {} there and {} in the model", tensor.name,
                                    shape_text(found->shape), shape_text(tensor.shape)));
    } else {
      ours_[found->name].push_back(&tensor);
    }
  }

  void refuse_differences() const {
    if (missing_.empty() && shapes_.empty()) return;
    std::vector<std::string> known, lines;
    for (const auto& [name, tensor] : theirs_) known.push_back(name);
    for (const SavedTensor* tensor : missing_) {
      lines.push_back(fmt::format("'{}' {} is not in the checkpoint{}", tensor->name, shape_text(tensor->shape),
                                  did_you_mean(tensor->name, known)));
    }
    lines.insert(lines.end(), shapes_.begin(), shapes_.end());
    std::vector<std::string> extra;
    for (const auto& name : extra_names()) extra.push_back(fmt::format("'{}' is not in the model", name));
    lines.insert(lines.end(), extra.begin(), extra.end());
    throw UserError(
        ExitCode::kBadInput,
        fmt::format(
            "the checkpoint '{}' does not fit the model{}:{}", state_.files.directory,
            state_.files.is_pipeline() ? ", neither by the numbers of its layers nor by their order and shapes" : "",
            list(lines)));
  }

  std::vector<std::string> extra_names() const {
    std::vector<std::string> out;
    for (const auto& tensor : state_.metadata.parameters) {
      if (!ours_.count(tensor.name)) out.push_back(rename_(tensor.name));
    }
    return out;
  }

  void add(size_t shard, const SavedTensor& tensor, const std::string& state, int64_t begin,
           const PieceValues& values) {
    shards_[shard].push_back({tensor.name, state, begin, values});
  }

  void move_pieces() {
    shards_.resize(state_.shards.size());
    std::set<std::string> thawed;
    for (size_t shard = 0; shard < state_.shards.size(); ++shard) {
      for (const auto& piece : state_.shards[shard]) {
        const bool is_moment = state_.optimizer_states.count(piece.state) > 0;
        const auto targets = ours_.find(piece.parameter);
        if (targets == ours_.end()) continue;
        for (const SavedTensor* tensor : targets->second) {
          const bool trained = tensor->trainable && !tensor->is_buffer;
          if (is_moment && !trained) continue;
          add(shard, *tensor,
              is_moment           ? piece.state
              : trained           ? "master"
              : tensor->is_buffer ? "buffer"
                                  : "frozen",
              piece.begin, piece.values);
          if (trained && (piece.state == "frozen" || piece.state == "buffer")) thawed.insert(tensor->name);
        }
      }
    }
    start_moments(thawed);
  }

  // Parameters that the model trains but DeepSpeed did not: their moments start at zero.
  void start_moments(const std::set<std::string>& thawed) {
    for (const auto& tensor : model_) {
      if (!thawed.count(tensor.name)) continue;
      for (const auto& moment : state_.optimizer_states)
        add(0, tensor, moment, 0, at::zeros({tensor.numel()}, at::kFloat));
    }
    if (!thawed.empty()) {
      state_.notes.push_back(fmt::format("trained by the model, but not there, so their moments start at zero: {}",
                                         fmt::join(thawed, ", ")));
    }
  }

  void note_differences() {
    auto note = [&](const char* what, const std::vector<std::string>& names) {
      if (!names.empty()) state_.notes.push_back(fmt::format("{}: {}", what, list_names(names)));
    };
    std::vector<std::string> kept, untied, frozen;
    for (const SavedTensor* tensor : kept_) kept.push_back(tensor->name);
    for (const auto& tensor : state_.metadata.parameters) {
      const auto targets = ours_.find(tensor.name);
      if (targets == ours_.end()) continue;
      if (targets->second.size() > 1) untied.push_back(targets->second[0]->name);
      if (tensor.trainable && !targets->second[0]->trainable) frozen.push_back(targets->second[0]->name);
    }
    note("not in the checkpoint, taken from the model file", kept);
    note("in the checkpoint, but not in the model, and left out", extra_names());
    note("tied there, but not in the model, where each gets a copy", untied);
    note("trained there, but frozen in the model, so their moments are left out", frozen);
  }

  ImportedState& state_;
  const std::vector<SavedTensor>& model_;
  std::function<std::string(const std::string&)> rename_;
  std::map<std::string, const SavedTensor*> theirs_;             // by any name, renamed
  std::map<std::string, std::vector<const SavedTensor*>> ours_;  // by DeepSpeed's name, unchanged
  std::vector<const SavedTensor*> missing_, kept_;
  std::vector<std::string> shapes_;
  std::vector<std::vector<StatePiece>> shards_;
};

}  // namespace

std::string Renaming::operator()(const std::string& name) const {
  return add + (name.compare(0, strip.size(), strip) == 0 ? name.substr(strip.size()) : name);
}

Renaming find_renaming(const std::vector<std::string>& names, const std::vector<SavedTensor>& model) {
  if (names.empty() || model.empty()) return {wrappers_prefix(names), ""};
  const auto own = all_names(model);
  const std::set<std::string> known(own.begin(), own.end());
  Renaming best;
  size_t most = 0;
  const auto prefixes = common_prefixes(own);
  for (const auto& strip : common_prefixes(names)) {
    for (const auto& add : prefixes) {
      const Renaming rename{strip, add};
      const auto matches = static_cast<size_t>(
          std::count_if(names.begin(), names.end(), [&](const auto& name) { return known.count(rename(name)) > 0; }));
      if (matches > most) {
        most = matches;
        best = rename;
      }
    }
  }
  return most > 0 ? best : Renaming{wrappers_prefix(names), ""};
}

const SavedTensor* find_tensor(const std::vector<SavedTensor>& model, const std::string& name) {
  for (const auto& tensor : model) {
    if (tensor.name == name || std::find(tensor.aliases.begin(), tensor.aliases.end(), name) != tensor.aliases.end()) {
      return &tensor;
    }
  }
  return nullptr;
}

void fit_to_model(ImportedState& state, const std::vector<SavedTensor>& model,
                  const std::function<at::Tensor(const std::string& name)>& value_of) {
  Fitting(state, model).run(value_of);
}

void strip_prefixes(ImportedState& state) {
  const Renaming rename = find_renaming(all_names(state.metadata.parameters), {});
  for (auto& tensor : state.metadata.parameters) {
    tensor.name = rename(tensor.name);
    for (auto& alias : tensor.aliases) alias = rename(alias);
  }
  for (auto& shard : state.shards) {
    for (auto& piece : shard) piece.parameter = rename(piece.parameter);
  }
  if (!state.unplaced.empty()) {
    state.notes.push_back(
        fmt::format("tied to another parameter, but stage 3 does not say which (with --model it is known): {}",
                    fmt::join(state.unplaced, ", ")));
  }
}

}  // namespace dslaunch::runtime::deepspeed
