#include "config/key_table.hpp"

#include <algorithm>
#include <unordered_map>

namespace dslaunch::config {
namespace {

constexpr KeyAlias kAliases[] = {
    {"zero_optimization.prefetch_bucket_size", "zero_optimization.stage3_prefetch_bucket_size"},
    {"zero_optimization.param_persistence_threshold", "zero_optimization.stage3_param_persistence_threshold"},
    {"zero_optimization.model_persistence_threshold", "zero_optimization.stage3_model_persistence_threshold"},
    {"zero_optimization.max_live_parameters", "zero_optimization.stage3_max_live_parameters"},
    {"zero_optimization.max_reuse_distance", "zero_optimization.stage3_max_reuse_distance"},
    {"zero_optimization.gather_16bit_weights_on_model_save",
     "zero_optimization.stage3_gather_16bit_weights_on_model_save"},
    {"zero_optimization.module_granularity_threshold", "zero_optimization.stage3_module_granularity_threshold"},
    {"zero_optimization.use_all_reduce_for_fetch_params", "zero_optimization.stage3_use_all_reduce_for_fetch_params"},
    {"zero_optimization.allgather_sequential", "zero_optimization.stage3_allgather_sequential"},
    {"zero_optimization.stage3_gather_fp16_weights_on_model_save",
     "zero_optimization.stage3_gather_16bit_weights_on_model_save", true},
    {"zero_optimization.cpu_offload", "zero_optimization.offload_optimizer.device", true},
    {"zero_optimization.cpu_offload_param", "zero_optimization.offload_param.device", true},
    {"optimizer.params.learning_rate", "optimizer.params.lr", false, false, true},
    {"scheduler.params.num_warmup_steps", "scheduler.params.warmup_num_steps", false, false, true},
    {"scheduler.params.warmup_steps", "scheduler.params.warmup_num_steps", false, false, true},
    {"scheduler.params.num_training_steps", "scheduler.params.total_num_steps", false, false, true},
    {"aio.thread_count", "aio.intra_op_parallelism", false, true},
    {"bfloat16", "bf16", true, true},
    {"checkpoint.load.load_optimizer_states", "checkpoint.load.optimizer_states"},
    {"checkpoint.load.load_module_only", "checkpoint.load.weights_only"},
    {"checkpoint.load.load_module_strict", "checkpoint.load.strict"},
    {"elasticity.prefer_large_batch", "elasticity.prefer_larger_batch"},
    {"kernel_inject", "replace_with_kernel_inject"},
    {"tp", "tensor_parallel"},
    {"tm", "triangular_masking"},
    {"max_tokens", "max_out_tokens"},
    {"min_tokens", "min_out_tokens"},
    {"ckpt_config", "checkpoint_config"},
    {"injection_dict", "injection_policy"},
    {"tensor_parallel.injection_policy", "injection_policy"},
    {"injection_policy_tuple", "tensor_parallel.injection_policy_tuple"},
    {"tensor_parallel.tp_overlap_comm", "tensor_parallel.overlap"},
    {"args", "config"},
    {"moe.num_experts", "moe.moe_experts"},
};

std::string_view top_section(std::string_view path) {
  return path.substr(0, path.find('.'));
}

struct Index {
  std::vector<const KeySpec*> rows;
  std::unordered_map<std::string_view, const KeySpec*> by_path;
  std::unordered_map<std::string_view, std::vector<const KeySpec*>> by_name;  // except keys below a *
  std::unordered_map<std::string_view, const KeyAlias*> alias_by_path;
  std::unordered_map<std::string_view, std::vector<std::string>> names_by_section;

  Index() {
    for (auto table : {top_level_keys(), optimizer_keys(), precision_keys(), zero_keys(), offload_keys(), own_keys(),
                       pipeline_keys(), tensor_parallel_keys(), storage_keys(), monitoring_keys(),
                       data_efficiency_keys(), unsupported_training_keys(), unsupported_inference_keys()}) {
      for (const auto& row : table) add(row);
    }
    join_sections();
    for (const auto& alias : kAliases) {
      alias_by_path.emplace(alias.old_path, &alias);
      if (is_accepted(*by_path.at(alias.path)))
        names_by_section[section_of(alias.old_path)].emplace_back(last_name(alias.old_path));
    }
  }

  void add(const KeySpec& row) {
    rows.push_back(&row);
    by_path.emplace(row.path, &row);
    if (row.path.find('*') == row.path.npos) by_name[last_name(row.path)].push_back(&row);
    const auto name = last_name(row.path);
    if (name != "*" && is_accepted(row)) names_by_section[section_of(row.path)].emplace_back(name);
  }

  // Moves the rows of a section that are in several tables to the first of them.
  void join_sections() {
    std::unordered_map<std::string_view, size_t> first;
    for (size_t i = 0; i < rows.size(); ++i) first.emplace(top_section(rows[i]->path), i);
    std::stable_sort(rows.begin(), rows.end(), [&](const KeySpec* a, const KeySpec* b) {
      return first.at(top_section(a->path)) < first.at(top_section(b->path));
    });
  }
};

const Index& index() {
  static const Index once;
  return once;
}

bool is_in(std::span<const KeySpec> table, const KeySpec& row) {
  return &row >= table.data() && &row < table.data() + table.size();
}

// Sections of DeepSpeed whose keys appear in the wrong place in published files; so do the keys of the top level.
constexpr std::string_view kOftenMisplaced[] = {"optimizer",
                                                "scheduler",
                                                "fp16",
                                                "bf16",
                                                "amp",
                                                "data_types",
                                                "zero_optimization",
                                                "aio",
                                                "pipeline",
                                                "checkpoint",
                                                "torch_autocast",
                                                "activation_checkpointing",
                                                "nebula"};

// No published file uses our own sections.
bool may_be_misplaced(const KeySpec& row) {
  if (is_in(own_keys(), row) || is_in(unsupported_inference_keys(), row)) return false;
  return section_of(row.path).empty() ||
         std::count(std::begin(kOftenMisplaced), std::end(kOftenMisplaced), top_section(row.path)) > 0;
}

}  // namespace

bool is_accepted(const KeySpec& row) {
  return row.status == Status::kSupported || row.status == Status::kNoCounterpart;
}

const std::vector<const KeySpec*>& all_keys() {
  return index().rows;
}
std::span<const KeyAlias> all_aliases() {
  return kAliases;
}

const KeySpec* find_key(std::string_view path) {
  auto found = index().by_path.find(path);
  return found == index().by_path.end() ? nullptr : found->second;
}

const KeyAlias* find_alias(std::string_view path) {
  auto found = index().alias_by_path.find(path);
  return found == index().alias_by_path.end() ? nullptr : found->second;
}

std::vector<std::string> names_in(std::string_view section) {
  auto found = index().names_by_section.find(section);
  return found == index().names_by_section.end() ? std::vector<std::string>{} : found->second;
}

std::vector<std::string> paths_of_name(std::string_view name) {
  std::vector<std::string> out;
  auto found = index().by_name.find(name);
  if (found == index().by_name.end()) return out;
  for (const auto* row : found->second) out.emplace_back(row->path);
  return out;
}

const KeySpec* correct_path_of(std::string_view name) {
  auto found = index().by_name.find(name);
  if (found == index().by_name.end()) return nullptr;
  std::vector<const KeySpec*> rows = found->second;
  // Where the key does nothing is not where it belongs.
  if (rows.size() > 1) std::erase_if(rows, [](const KeySpec* row) { return row->status == Status::kNoCounterpart; });
  return rows.size() == 1 && may_be_misplaced(*rows.front()) ? rows.front() : nullptr;
}

std::string join_path(std::string_view section, std::string_view name) {
  if (section.empty()) return std::string(name);
  return std::string(section) + "." + std::string(name);
}

std::string_view section_of(std::string_view path) {
  size_t dot = path.rfind('.');
  return dot == path.npos ? std::string_view{} : path.substr(0, dot);
}

std::string_view last_name(std::string_view path) {
  size_t dot = path.rfind('.');
  return dot == path.npos ? path : path.substr(dot + 1);
}

}  // namespace dslaunch::config
