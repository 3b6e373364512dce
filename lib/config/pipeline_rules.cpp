// What the section "pipeline" requires of the other sections, and the forms of its keys.
#include <regex>
#include <string>
#include <vector>

#include "base/format.hpp"
#include "base/nearest_name.hpp"
#include "base/parse_int.hpp"
#include "config/rules.hpp"

namespace dslaunch::config {
namespace {

const std::string kStages = "pipeline.stages", kPartition = "pipeline.partition";
const std::string kInterval = "pipeline.activation_checkpoint_interval";
constexpr std::string_view kTypePrefix = "type:", kLayersPrefix = "layers:";

std::string in_lower_case(std::string text) {
  for (char& letter : text) letter = letter >= 'A' && letter <= 'Z' ? static_cast<char>(letter - 'A' + 'a') : letter;
  return text;
}

bool is_by_type(const std::string& partition) {
  return in_lower_case(partition).starts_with(kTypePrefix);
}

void check_layer_type(Settings& settings, const std::string& partition) {
  const std::string pattern = partition.substr(kTypePrefix.size());
  const auto refuse = [&](const std::string& what) {
    settings.add_error(Issue::Kind::kRange, kPartition,
                       fmt::format("'{}' {}: {}; write type: and a regular expression for class names of layers, for "
                                   "example type:block",
                                   kPartition, partition, what));
  };
  if (pattern.empty()) return refuse("there is nothing after 'type:'");
  try {
    const std::regex compiled(pattern, std::regex::ECMAScript | std::regex::icase);
  } catch (const std::regex_error& error) {
    refuse(fmt::format("it is not a regular expression ({})", error.what()));
  }
}

// Empty: the text is not of the form layers:N,M.
std::vector<int64_t> first_layers_of(const std::string& partition) {
  std::vector<int64_t> out;
  if (!partition.starts_with(kLayersPrefix)) return out;
  std::string_view rest = std::string_view(partition).substr(kLayersPrefix.size());
  while (true) {
    const size_t end = rest.find(',');
    const auto layer = parse_int<int64_t>(rest.substr(0, end));
    if (!layer || *layer <= (out.empty() ? 0 : out.back())) return {};
    out.push_back(*layer);
    if (end == rest.npos) return out;
    rest.remove_prefix(end + 1);
  }
}

void check_first_layers(Settings& settings, const std::string& partition) {
  const auto layers = first_layers_of(partition);
  const int64_t stages = settings.has_error(kStages) ? 0 : settings.integer(kStages);
  std::string what;
  if (layers.empty()) {
    what = "expected the first layer of each stage after the first, in rising order, for example layers:4,9";
  } else if (stages > 1 && std::ssize(layers) != stages - 1) {
    what = fmt::format("these are the cuts of {} stages, and '{}' is {}", layers.size() + 1, kStages, stages);
  }
  if (what.empty()) return;
  settings.add_error(Issue::Kind::kRange, kPartition, fmt::format("'{}' {}: {}", kPartition, partition, what));
}

// Measured times, and with them the cut and the order in which sums are taken, differ from start to start.
std::string repeatable(const Settings& settings, const std::string& method) {
  return method == "best" && settings.boolean("deterministic") ? "parameters" : method;
}

void check_partition(Settings& settings) {
  if (settings.has_error(kPartition)) return;
  const std::string partition = settings.text(kPartition), lower = in_lower_case(partition);
  if (is_by_type(partition)) return check_layer_type(settings, partition);
  if (lower.starts_with(kLayersPrefix)) {
    settings.solve(kPartition, Value::of_string(lower), settings.at(kPartition).origin);
    return check_first_layers(settings, lower);
  }
  static const std::vector<std::string> kMethods{"best", "time", "uniform", "parameters"};
  for (const auto& method : kMethods) {
    if (lower != method) continue;
    return settings.solve(kPartition, Value::of_string(repeatable(settings, method)), settings.at(kPartition).origin);
  }
  settings.add_error(Issue::Kind::kRange, kPartition,
                     fmt::format("'{}' must be best, time, uniform, parameters, type:REGEX or layers:N,M, not {}{}",
                                 kPartition, describe(settings.at(kPartition).value), did_you_mean(lower, kMethods)));
}

void check_zero_stage(Settings& settings) {
  const std::string zero = "zero_optimization.stage";
  if (settings.has_error(kStages) || settings.has_error(zero)) return;
  const int64_t stages = settings.integer(kStages), stage = settings.integer(zero);
  if (stages == 1 || stage < 2) return;
  settings.add_error(
      Issue::Kind::kConflict, zero,
      fmt::format(
          "'{}' {} does not go with {} pipeline stages: a pipeline adds up the gradients of a step's micro "
          "batches and reduces the sum once, while ZeRO stage {}; set it to 1 or 0 (DeepSpeed refuses it, too), "
          "or {} to 1",
          zero, stage, stages,
          stage == 2 ? "2 keeps no such sum: it shards gradients after every micro batch"
                     : "3 would gather and release the parameters of a stage again for every micro batch",
          kStages));
}

// Names what would need stages, unless their number was chosen.
void note_single_stage(Settings& settings) {
  if (settings.has_error(kStages) || settings.integer(kStages) > 1) return;
  const bool is_chosen = settings.given(kStages) && settings.at(kStages).origin != "auto";
  if (is_chosen) return;
  for (const auto& key : {kPartition, std::string("pipeline.schedule")}) {
    if (!settings.given(key) || settings.has_error(key)) continue;
    settings.note(key, fmt::format("'{}' has no effect with one stage; set '{}' or --stages P", key, kStages));
  }
}

void check_recomputation(Settings& settings) {
  if (settings.has_error(kInterval) || settings.integer(kInterval) == 0) return;
  const std::string groups = "activation_checkpointing.number_checkpoints",
                    enabled = "activation_checkpointing.enabled";
  if (!settings.at(groups).value.is_null()) {
    settings.add_error(
        Issue::Kind::kConflict, kInterval,
        fmt::format("'{}' gives the blocks of a group that is recomputed, and '{}' the number of groups; "
                    "leave one of the two out",
                    kInterval, groups));
  }
  if (settings.given(enabled) && !settings.at(enabled).value.is_null() && !settings.boolean(enabled)) {
    settings.add_error(Issue::Kind::kConflict, kInterval,
                       fmt::format("'{}' {} recomputes blocks, but '{}' is false; set one of the two", kInterval,
                                   settings.integer(kInterval), enabled));
  }
}

}  // namespace

void apply_pipeline_rules(Settings& settings) {
  check_partition(settings);
  check_zero_stage(settings);
  check_recomputation(settings);
  note_single_stage(settings);
}

void build_pipeline(const Settings& settings, Pipeline& out) {
  const std::string& partition = settings.text(kPartition);
  if (is_by_type(partition)) {
    out.partition = PipelinePartition::kType;
    out.layer_type = partition.substr(kTypePrefix.size());
  } else if (partition.starts_with(kLayersPrefix)) {
    out.partition = PipelinePartition::kLayers;
    out.first_layers = first_layers_of(partition);
  } else if (partition == "uniform") {
    out.partition = PipelinePartition::kUniform;
  } else if (partition == "parameters") {
    out.partition = PipelinePartition::kParameters;
  }
}

}  // namespace dslaunch::config
