#include "runtime/checkpoint/deepspeed/model_states.hpp"

#include <algorithm>
#include <string_view>

#include "base/error.hpp"
#include "base/format.hpp"
#include "runtime/checkpoint/deepspeed/json_text.hpp"
#include "runtime/state/tensor_extent.hpp"

namespace dslaunch::runtime::deepspeed {
namespace {

using pickle::Kind;
using pickle::Value;

// Keys that DeepSpeed writes; all others are the user's client_state.
constexpr std::string_view kKnownKeys[] = {"module",
                                           "buffer_names",
                                           "optimizer",
                                           "param_shapes",
                                           "frozen_param_shapes",
                                           "shared_params",
                                           "frozen_param_fragments",
                                           "lr_scheduler",
                                           "data_sampler",
                                           "random_ltd",
                                           "sparse_tensor_module_names",
                                           "skipped_steps",
                                           "global_steps",
                                           "global_samples",
                                           "dp_world_size",
                                           "mp_world_size",
                                           "ds_config",
                                           "ds_version",
                                           "csr_tensor_module_names",
                                           "mp_rank"};

class Reader {
 public:
  explicit Reader(const TorchFile& file) : file_(file), root_(file.root()) {
    if (!root_.is(Kind::kDict)) refuse("is no model state checkpoint of DeepSpeed: it holds no dict");
  }

  ModelStates read() {
    ModelStates out;
    read_module(out);
    read_names(out);
    if (const Value* shapes = present("param_shapes")) {
      out.lists_trainable = true;
      for (const Value* group : shapes->items) append_shapes(*group, out.trainable_groups.emplace_back());
    }
    if (const Value* shapes = present("frozen_param_shapes")) append_shapes(*shapes, out.frozen);
    out.optimizer = present("optimizer");
    out.global_steps = counter("global_steps");
    out.skipped_steps = counter("skipped_steps");
    out.global_samples = counter("global_samples");
    if (out.skipped_steps > out.global_steps) refuse("is damaged: more steps were skipped than taken");
    const int64_t ranks = counter("dp_world_size");
    out.data_parallel = ranks >= 1 && ranks <= 1'000'000 ? static_cast<int>(ranks) : 1;
    if (counter("mp_world_size") > 1)
      refuse("is split by tensor parallelism; only data-parallel checkpoints can be imported");
    if (const Value* schedule = present("lr_scheduler")) {
      if (const Value* last = schedule->find("last_batch_iteration")) out.last_batch_iteration = last->as_integer();
    }
    if (const Value* version = present("ds_version")) out.version = version->text;
    if (const Value* config = present("ds_config")) out.config = to_json_text(*config);
    for (const auto& [key, value] : root_.entries) {
      if (std::find(std::begin(kKnownKeys), std::end(kKnownKeys), key->text) == std::end(kKnownKeys)) {
        out.client_keys.push_back(key->text);
      }
    }
    return out;
  }

 private:
  [[noreturn]] void refuse(const std::string& what) const {
    throw UserError(ExitCode::kBadInput, fmt::format("'{}' {}", file_.path(), what));
  }

  const Value* present(std::string_view key) const {
    const Value* value = root_.find(key);
    return value && !value->is(Kind::kNone) ? value : nullptr;
  }

  int64_t counter(std::string_view key) const {
    const Value* value = present(key);
    if (!value) return 0;
    const auto count = value->as_integer();
    if (!count || *count < 0) refuse(fmt::format("is damaged: '{}' is no count", key));
    return *count;
  }

  void read_module(ModelStates& out) const {
    const Value* module = root_.find("module");
    if (!module || !root_.find("buffer_names")) {
      refuse("is no model state checkpoint of DeepSpeed: it has no 'module' and 'buffer_names'");
    }
    if (!module->is(Kind::kDict)) refuse("holds no weights ('module' is none), as checkpoints of pipelines do");
    for (const auto& [key, value] : module->entries) {
      if (!key->is(Kind::kText)) refuse("is damaged: a parameter without a name");
      if (TorchFile::is_tensor(*value)) out.module.emplace_back(key->text, value);
    }
  }

  void read_names(ModelStates& out) const {
    for (const Value* name : root_.find("buffer_names")->items) out.buffers.insert(name->text);
    if (const Value* shared = present("shared_params")) {
      for (const auto& [alias, kept] : shared->entries) out.shared.emplace_back(alias->text, kept->text);
    }
    if (const Value* fragments = present("frozen_param_fragments")) {
      for (const auto& [name, value] : fragments->entries) out.frozen_fragments[name->text] = value;
    }
  }

  void append_shapes(const Value& dict, std::vector<NamedShape>& out) const {
    for (const auto& [name, shape] : dict.entries) {
      NamedShape entry{name->text, {}, 0};
      for (const Value* size : shape->items) entry.shape.push_back(size->as_integer().value_or(-1));
      const auto numel = numel_of(entry.shape);
      if (!numel) refuse(fmt::format("is damaged: '{}' has a bad shape", entry.name));
      entry.numel = *numel;
      out.push_back(std::move(entry));
    }
  }

  const TorchFile& file_;
  const Value& root_;
};

}  // namespace

std::vector<NamedShape> ModelStates::all_trainable() const {
  std::vector<NamedShape> out;
  for (const auto& group : trainable_groups) out.insert(out.end(), group.begin(), group.end());
  return out;
}

ModelStates read_model_states(const TorchFile& file) {
  return Reader(file).read();
}

const Value* find_index(const Value& dict, int64_t index) {
  for (const auto& [key, value] : dict.entries) {
    if (key->is(Kind::kInteger) && key->integer == index) return value;
  }
  return nullptr;
}

}  // namespace dslaunch::runtime::deepspeed
