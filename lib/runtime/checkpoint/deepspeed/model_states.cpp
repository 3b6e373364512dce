#include "runtime/checkpoint/deepspeed/model_states.hpp"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <string_view>

#include "base/dump_json.hpp"
#include "base/error.hpp"
#include "base/format.hpp"
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

using Json = nlohmann::ordered_json;
constexpr int kMaxDepth = 64;
constexpr size_t kMaxValues = 100'000;  // a value that is referenced often is written often

// A config as JSON text for a person to read: objects appear as their class name, values that nest deeper than 64
// levels as null.
class JsonWriter {
 public:
  Json write(const Value& value, int depth) {
    if (depth > kMaxDepth || ++num_values_ > kMaxValues) return nullptr;
    switch (value.kind) {
      case Kind::kBool:
        return value.boolean;
      case Kind::kInteger:
        return value.integer;
      case Kind::kFloat:
        return value.number;
      case Kind::kText:
        return value.text;
      case Kind::kList:
      case Kind::kTuple:
      case Kind::kSet: {
        Json list = Json::array();
        for (const Value* item : value.items) list.push_back(write(*item, depth + 1));
        return list;
      }
      case Kind::kDict: {
        Json dict = Json::object();
        for (const auto& [key, entry] : value.entries) {
          const Json name = write(*key, kMaxDepth);
          dict[name.is_string() ? name.get<std::string>() : name.dump()] = write(*entry, depth + 1);
        }
        return dict;
      }
      case Kind::kGlobal:
      case Kind::kObject:
        if (const auto number = value.as_number()) return *number;
        return std::string(value.class_name());
      default:
        return nullptr;
    }
  }

 private:
  size_t num_values_ = 0;
};

class Reader {
 public:
  Reader(const TorchFile& file, bool is_stage) : file_(file), root_(file.root()), is_stage_(is_stage) {
    if (!root_.is(Kind::kDict)) refuse("is not a model state checkpoint of DeepSpeed: it holds no dict");
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
    out.model_parallel_size = counter("mp_world_size");
    out.data_parallel_size = counter("dp_world_size");
    if (!is_stage_ && out.model_parallel_size > 1)
      refuse("is split by tensor parallelism; only data-parallel checkpoints can be imported");
    if (const Value* schedule = present("lr_scheduler")) {
      if (const Value* last = schedule->find("last_batch_iteration")) out.last_batch_iteration = last->as_integer();
    }
    if (const Value* version = present("ds_version")) out.version = version->text;
    if (const Value* config = present("ds_config")) out.config = dump_json(JsonWriter().write(*config, 0), 1);
    for (const auto& [key, value] : root_.entries) {
      if (std::find(std::begin(kKnownKeys), std::end(kKnownKeys), key->text) == std::end(kKnownKeys)) {
        out.client_keys.push_back(key->text);
      }
    }
    return out;
  }

 private:
  [[noreturn]] void refuse(const std::string& what) const { refuse_file(file_, what); }

  const Value* present(std::string_view key) const {
    const Value* value = root_.find(key);
    return value && !value->is(Kind::kNone) ? value : nullptr;
  }

  int64_t counter(std::string_view key) const {
    const Value* value = present(key);
    if (!value) return 0;
    const auto count = value->as_integer();
    if (!count || *count < 0) refuse(fmt::format("is damaged: '{}' is not a count", key));
    return *count;
  }

  void read_module(ModelStates& out) const {
    const Value* module = root_.find("module");
    if (!module || !root_.find("buffer_names")) {
      refuse("is not a model state checkpoint of DeepSpeed: it has no 'module' and 'buffer_names'");
    }
    if (is_stage_) {
      if (!module->is(Kind::kNone)) refuse("holds weights, which a stage of a pipeline has in the files of its layers");
      return;
    }
    if (!module->is(Kind::kDict)) refuse("holds no weights ('module' is none), as checkpoints of pipelines do");
    out.module = tensors_of(file_, *module);
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
  const bool is_stage_;
};

}  // namespace

std::vector<std::pair<std::string, StoredTensor>> tensors_of(const TorchFile& file, const Value& state_dict) {
  std::vector<std::pair<std::string, StoredTensor>> out;
  for (const auto& [key, value] : state_dict.entries) {
    if (!key->is(Kind::kText)) refuse_file(file, "is damaged: a parameter without a name");
    if (TorchFile::is_tensor(*value)) out.emplace_back(key->text, StoredTensor{&file, value});
  }
  return out;
}

std::vector<NamedShape> ModelStates::all_trainable() const {
  std::vector<NamedShape> out;
  for (const auto& group : trainable_groups) out.insert(out.end(), group.begin(), group.end());
  return out;
}

void refuse_file(const TorchFile& file, const std::string& what) {
  throw UserError(ExitCode::kBadInput, fmt::format("'{}' {}", file.path(), what));
}

ModelStates read_model_states(const TorchFile& file) {
  return Reader(file, /*is_stage=*/false).read();
}

ModelStates read_stage_model_states(const TorchFile& file) {
  return Reader(file, /*is_stage=*/true).read();
}

const Value* find_index(const Value& dict, int64_t index) {
  for (const auto& [key, value] : dict.entries) {
    if (key->is(Kind::kInteger) && key->integer == index) return value;
  }
  return nullptr;
}

}  // namespace dslaunch::runtime::deepspeed
