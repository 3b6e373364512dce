// curriculum_learning and data_efficiency: their switches, the schedules of difficulties, what excludes what.
#include <algorithm>
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/format.hpp"
#include "config/difficulty.hpp"
#include "config/enum_names.hpp"
#include "config/rules.hpp"

namespace dslaunch::config {
namespace {

const std::string kLengths = "curriculum_learning", kSampling = "data_efficiency.data_sampling",
                  kMetrics = kSampling + ".curriculum_learning.curriculum_metrics",
                  kDynamic = kSampling + ".dynamic_batching", kRouting = "data_efficiency.data_routing",
                  kLtd = kRouting + ".random_ltd";

bool is_on(const Settings& settings, const std::string& section) {
  return settings.boolean(section + ".enabled");
}

bool samples_are_chosen(const Settings& settings) {
  return is_on(settings, "data_efficiency") && is_on(settings, kSampling);
}

bool has_metrics(const Settings& settings) {
  return samples_are_chosen(settings) && is_on(settings, kSampling + ".curriculum_learning");
}

bool has_dynamic_batches(const Settings& settings) {
  return samples_are_chosen(settings) && is_on(settings, kDynamic);
}

bool drops_tokens(const Settings& settings) {
  return is_on(settings, "data_efficiency") && is_on(settings, kRouting) && is_on(settings, kLtd);
}

// The value of a key that may lie in a section with a user-defined name; null: not given.
const Value* find_value(const Settings& settings, const std::string& path) {
  const Setting* setting = settings.find(path);
  return setting == nullptr || setting->value.is_null() ? nullptr : &setting->value;
}

std::string text_of(const Settings& settings, const std::string& path, const std::string& otherwise = {}) {
  const Value* value = find_value(settings, path);
  return value == nullptr ? otherwise : value->text;
}

// In the order of the file.
std::vector<std::string> metric_sections(const Settings& settings) {
  std::vector<std::pair<int, std::string>> order;
  for (const auto& [path, setting] : settings.all()) {
    if (setting.parts.size() == 5 && path.starts_with(kMetrics + ".")) order.emplace_back(setting.order, path);
  }
  std::sort(order.begin(), order.end());
  std::vector<std::string> out;
  for (auto& [position, path] : order) out.push_back(std::move(path));
  return out;
}

// Adds an error unless the key was given.
bool require(Settings& settings, const std::string& section, const std::string& key, const std::string& why) {
  const std::string path = section + "." + key;
  if (settings.has_error(path)) return false;
  if (find_value(settings, path) != nullptr) return true;
  settings.add_error(Issue::Kind::kConflict, path, fmt::format("'{}' needs '{}'{}", section, key, why));
  return false;
}

Difficulty read_difficulty(const Settings& settings, const std::string& section) {
  Difficulty out;
  const auto take = [&](const std::string& key, int64_t& to) {
    if (const Value* value = find_value(settings, section + "." + key)) to = value->integer;
  };
  const auto take_list = [&](const std::string& key, std::vector<int64_t>& to) {
    const Value* value = find_value(settings, section + "." + key);
    if (value == nullptr) return;
    for (const auto& item : value->items) to.push_back(item.integer);
  };
  const std::string type = text_of(settings, section + ".schedule_type");
  out.schedule = find_value(kDifficultySchedules, type).value_or(out.schedule);
  take("min_difficulty", out.minimum);
  take("max_difficulty", out.maximum);
  take("schedule_config.total_curriculum_step", out.total_steps);
  take("schedule_config.difficulty_step", out.granularity);
  take("schedule_config.root_degree", out.root_degree);
  take_list("schedule_config.difficulty", out.levels);
  take_list("schedule_config.max_step", out.last_steps);
  return out;
}

void check_levels(Settings& settings, const std::string& section, const Difficulty& difficulty) {
  const std::string lists = section + ".schedule_config";
  if (difficulty.levels.size() != difficulty.last_steps.size() + 1) {
    settings.add_error(Issue::Kind::kConflict, lists + ".max_step",
                       fmt::format("'{}.max_step' must have one entry less than 'difficulty', whose last one stays: it "
                                   "has {}, and 'difficulty' has {}",
                                   lists, difficulty.last_steps.size(), difficulty.levels.size()));
  } else if (!std::is_sorted(difficulty.last_steps.begin(), difficulty.last_steps.end(), std::less_equal<>())) {
    settings.add_error(Issue::Kind::kRange, lists + ".max_step",
                       fmt::format("'{}.max_step' must ascend: each entry is the last step of a difficulty", lists));
  }
}

// Whether all of the schedule is there and makes sense.
bool check_difficulty(Settings& settings, const std::string& section) {
  const size_t num_issues = settings.issues().size();
  for (const char* key : {"min_difficulty", "max_difficulty", "schedule_type"}) require(settings, section, key, "");
  if (settings.issues().size() > num_issues) return false;
  const std::string type = text_of(settings, section + ".schedule_type");
  if (!find_value(kDifficultySchedules, type)) return false;  // it is refused by itself
  std::vector<std::string> keys{"total_curriculum_step", "difficulty_step"};
  if (type == "fixed_root") keys.emplace_back("root_degree");
  if (type == "fixed_discrete") keys = {"difficulty", "max_step"};
  for (const auto& key : keys) {
    require(settings, section, "schedule_config." + key, fmt::format(" with schedule_type {}", type));
  }
  if (settings.issues().size() > num_issues) return false;
  const Difficulty difficulty = read_difficulty(settings, section);
  if (difficulty.minimum > difficulty.maximum) {
    settings.add_error(Issue::Kind::kConflict, section + ".min_difficulty",
                       fmt::format("'{}.min_difficulty' {} is above max_difficulty {}", section, difficulty.minimum,
                                   difficulty.maximum));
  }
  if (difficulty.schedule == DifficultySchedule::kFixedDiscrete) check_levels(settings, section, difficulty);
  return settings.issues().size() == num_issues;
}

void check_lengths(Settings& settings) {
  require(settings, kLengths, "curriculum_type", ": write \"seqlen\"");
  if (!check_difficulty(settings, kLengths)) return;
  const Difficulty difficulty = read_difficulty(settings, kLengths);
  const bool is_list = difficulty.schedule == DifficultySchedule::kFixedDiscrete;
  const int64_t least =
      is_list ? *std::min_element(difficulty.levels.begin(), difficulty.levels.end()) : difficulty_at(difficulty, 1);
  if (least >= 1) return;
  settings.add_error(
      Issue::Kind::kRange, is_list ? kLengths + ".schedule_config.difficulty" : kLengths + ".min_difficulty",
      is_list ? fmt::format("'{}.schedule_config.difficulty' has a length of {}, which leaves nothing of a sample",
                            kLengths, least)
              : fmt::format("'{}' begins with samples of length {}, which leaves nothing of them: min_difficulty {} is "
                            "rounded down to a multiple of difficulty_step {}; make it at least {}",
                            kLengths, least, difficulty.minimum, difficulty.granularity, difficulty.granularity));
}

void check_metric(Settings& settings, const std::string& section) {
  if (!check_difficulty(settings, section)) return;
  if (text_of(settings, section + ".clustering_type") == "single_cluster") return;
  const bool by_percentile = text_of(settings, section + ".difficulty_type") == "percentile";
  if (!require(settings, section, "index_to_sample_path", ", which tools/analyze_data writes")) return;
  if (!by_percentile) {
    require(settings, section, "index_to_metric_path", ", which tools/analyze_data writes, with difficulty_type value");
    return;
  }
  const Difficulty difficulty = read_difficulty(settings, section);
  if (difficulty.minimum >= 0 && difficulty.maximum >= 1) return;
  settings.add_error(Issue::Kind::kRange, section + ".max_difficulty",
                     fmt::format("'{}': with difficulty_type percentile, difficulties count from 0 to max_difficulty, "
                                 "which is all samples: min_difficulty {} and max_difficulty {} admit none",
                                 section, difficulty.minimum, difficulty.maximum));
}

void check_dynamic_batches(Settings& settings) {
  require(settings, kDynamic, "max_tokens", "");
  require(settings, kDynamic, "metrics_path", ", the directory of tools/analyze_data with the metric seqlen");
  const int64_t least = settings.integer(kDynamic + ".min_batch_size");
  const Value& most = settings.at(kDynamic + ".max_batch_size").value;
  if (!most.is_null() && most.integer < least) {
    settings.add_error(Issue::Kind::kConflict, kDynamic + ".max_batch_size",
                       fmt::format("'{}.max_batch_size' {} is below min_batch_size {}", kDynamic, most.integer, least));
  }
  if (has_metrics(settings)) {
    settings.add_error(
        Issue::Kind::kConflict, kDynamic + ".enabled",
        fmt::format("'{}' and '{}.curriculum_learning' both choose the samples of a batch; switch one of them off",
                    kDynamic, kSampling));
  }
}

RandomLtd read_random_ltd(const Settings& settings) {
  const std::string schedule = kLtd + ".random_ltd_schedule";
  RandomLtd out{.kept = {.minimum = settings.integer(schedule + ".min_value"),
                         .maximum = settings.integer(schedule + ".max_value"),
                         .total_steps = settings.integer(schedule + ".schedule_config.require_steps"),
                         .granularity = settings.integer(schedule + ".schedule_config.seq_per_step")},
                .num_layers = settings.integer(kLtd + ".total_layer_num"),
                .batch_first = settings.text(kLtd + ".hidden_state_order") == "batch_seq_dim",
                .is_decoder = settings.text(kLtd + ".model_type") == "decoder",
                .mask_name = settings.text(kLtd + ".model_mask_name")};
  for (const auto& item : settings.at(kLtd + ".random_ltd_layer_id").value.items) out.layers.push_back(item.integer);
  std::sort(out.layers.begin(), out.layers.end());
  return out;
}

void check_layers(Settings& settings, const RandomLtd& ltd) {
  const std::string path = kLtd + ".random_ltd_layer_id";
  const auto refuse = [&](const std::string& what) { settings.add_error(Issue::Kind::kConflict, path, what); };
  if (const int64_t count = settings.integer(kLtd + ".random_ltd_layer_num"); count != std::ssize(ltd.layers)) {
    refuse(fmt::format("'{}' has {} layers, and random_ltd_layer_num is {}", path, ltd.layers.size(), count));
  } else if (std::adjacent_find(ltd.layers.begin(), ltd.layers.end()) != ltd.layers.end()) {
    refuse(fmt::format("'{}' names a layer twice", path));
  } else if (ltd.layers.back() >= ltd.num_layers) {
    refuse(fmt::format("'{}' has layer {}, and total_layer_num is {}: layers count from 0", path, ltd.layers.back(),
                       ltd.num_layers));
  }
}

void check_random_ltd(Settings& settings) {
  const size_t num_issues = settings.issues().size();
  for (const char* key :
       {"total_layer_num", "random_ltd_layer_num", "random_ltd_layer_id", "model_type", "hidden_state_order",
        "random_ltd_schedule.min_value", "random_ltd_schedule.max_value", "random_ltd_schedule.schedule_type",
        "random_ltd_schedule.schedule_config.require_steps", "random_ltd_schedule.schedule_config.seq_per_step"}) {
    require(settings, kLtd, key, "");
  }
  if (settings.issues().size() > num_issues) return;
  const RandomLtd ltd = read_random_ltd(settings);
  check_layers(settings, ltd);
  const std::string least = kLtd + ".random_ltd_schedule.min_value";
  if (ltd.kept.minimum > ltd.kept.maximum) {
    settings.add_error(Issue::Kind::kConflict, least,
                       fmt::format("'{}' {} is above max_value {}", least, ltd.kept.minimum, ltd.kept.maximum));
  } else if (difficulty_at(ltd.kept, 0) < 1) {
    settings.add_error(Issue::Kind::kRange, least,
                       fmt::format("'{}' {} is rounded down to a multiple of seq_per_step {}, which keeps no position",
                                   least, ltd.kept.minimum, ltd.kept.granularity));
  }
  const auto exclude = [&](const char* what, bool is_there) {
    if (!is_there) return;
    settings.add_error(Issue::Kind::kConflict, kLtd + ".enabled",
                       fmt::format("'{}' does not work with {}; switch one of them off", kLtd, what));
  };
  exclude("pipeline.stages above 1", settings.integer("pipeline.stages") > 1);
  exclude("tensor_parallel.sequence_parallel", settings.boolean("tensor_parallel.sequence_parallel"));
}

CurriculumMetric read_metric(const Settings& settings, const std::string& section) {
  return {.name = section.substr(kMetrics.size() + 1),
          .difficulty = read_difficulty(settings, section),
          .by_percentile = text_of(settings, section + ".difficulty_type") == "percentile",
          .is_single_cluster = text_of(settings, section + ".clustering_type") == "single_cluster",
          .index_to_sample_path = text_of(settings, section + ".index_to_sample_path"),
          .index_to_metric_path = text_of(settings, section + ".index_to_metric_path")};
}

DynamicBatching read_dynamic_batching(const Settings& settings) {
  DynamicBatching out{.metrics_path = settings.text(kDynamic + ".metrics_path"),
                      .max_tokens = settings.integer(kDynamic + ".max_tokens"),
                      .min_batch_size = settings.integer(kDynamic + ".min_batch_size"),
                      .verbose = settings.boolean(kDynamic + ".verbose")};
  if (const Value* most = find_value(settings, kDynamic + ".max_batch_size")) out.max_batch_size = most->integer;
  out.lr_scaling_method = *find_value(kRateScalings, settings.text(kDynamic + ".lr_scaling_method"));
  out.sequence_picking_order = *find_value(kPickingOrders, settings.text(kDynamic + ".sequence_picking_order"));
  return out;
}

}  // namespace

std::optional<int64_t> sampler_epochs(const Settings& settings) {
  const Value* epochs = find_value(settings, kSampling + ".num_epochs");
  if (epochs == nullptr || (!has_metrics(settings) && !has_dynamic_batches(settings))) return std::nullopt;
  return epochs->integer;
}

void apply_data_efficiency_rules(Settings& settings) {
  if (is_on(settings, kLengths)) check_lengths(settings);
  if (has_metrics(settings)) {
    const auto metrics = metric_sections(settings);
    if (metrics.empty()) {
      settings.add_error(Issue::Kind::kConflict, kMetrics,
                         fmt::format("'{}.curriculum_learning' needs 'curriculum_metrics', at least one", kSampling));
    }
    for (const auto& metric : metrics) check_metric(settings, metric);
  }
  if (has_dynamic_batches(settings)) check_dynamic_batches(settings);
  if (drops_tokens(settings)) check_random_ltd(settings);
}

void build_data_efficiency(const Settings& settings, DataEfficiency& out) {
  if (is_on(settings, kLengths)) out.sequence_length = read_difficulty(settings, kLengths);
  out.num_epochs = sampler_epochs(settings);
  if (has_metrics(settings)) {
    for (const auto& metric : metric_sections(settings)) out.metrics.push_back(read_metric(settings, metric));
  }
  if (has_dynamic_batches(settings)) out.dynamic_batching = read_dynamic_batching(settings);
  if (drops_tokens(settings)) out.random_ltd = read_random_ltd(settings);
}

}  // namespace dslaunch::config
