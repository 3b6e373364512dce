// train.metrics, and what decides by the values of evaluations: train.early_stopping and checkpoint.keep_best.
#include <algorithm>
#include <optional>
#include <string>
#include <vector>

#include "base/format.hpp"
#include "base/nearest_name.hpp"
#include "config/coerce.hpp"
#include "config/enum_names.hpp"
#include "config/option_list.hpp"
#include "config/rules.hpp"

namespace dslaunch::config {
namespace {

const std::string kMetrics = "train.metrics", kEarlyStopping = "train.early_stopping",
                  kKeepBest = "checkpoint.keep_best", kPrefix = "eval_";

struct NamedMetric {
  const char* name;
  MetricMode mode;
};
constexpr NamedMetric kNamed[] = {{"perplexity", MetricMode::kMin}, {"accuracy", MetricMode::kMax}};

const NamedMetric* find_named(const std::string& name) {
  const auto found =
      std::find_if(std::begin(kNamed), std::end(kNamed), [&](const auto& one) { return one.name == name; });
  return found == std::end(kNamed) ? nullptr : &*found;
}

std::vector<std::string> all_named() {
  std::vector<std::string> out;
  for (const auto& one : kNamed) out.emplace_back(one.name);
  return out;
}

void add(Settings& settings, Issue::Kind kind, const std::string& path, std::string message) {
  settings.add_error(kind, path, std::move(message));
}

// The names become keys of metrics.jsonl and parts of files' names.
bool is_plain(const std::string& name) {
  return !name.empty() && std::all_of(name.begin(), name.end(), [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_';
  });
}

// A text stands for one metric, or for several with commas, as on the command line.
std::vector<Value> entries_of(const Value& given) {
  if (given.is_null()) return {};
  if (given.is_array()) return given.items;
  if (!given.is_string()) return {given};
  const auto list = list_in_option(given.text);
  std::vector<Value> out;
  for (const auto& name : list ? *list : words_between_commas(given.text)) out.push_back(Value::of_string(name));
  return out;
}

std::string unknown_name(const std::string& name) {
  return fmt::format(
      "'{}' has '{}', which is not a metric{}; metrics by name are {}, and {{\"name\": \"{}\", \"module\": "
      "\"metric.pt\"}} is one of your own (docs/data.md)",
      kMetrics, name, did_you_mean(name, all_named()), fmt::join(all_named(), " and "), is_plain(name) ? name : "f1");
}

// Of an object; empty: an error was added.
std::optional<EvaluationMetric> module_of(Settings& settings, const Value& entry) {
  const auto refuse = [&](Issue::Kind kind, std::string message) {
    add(settings, kind, kMetrics, std::move(message));
    return std::nullopt;
  };
  EvaluationMetric out;
  for (const auto& member : entry.members) {
    if (member.key != "name" && member.key != "module") {
      return refuse(Issue::Kind::kUnknownKey, fmt::format("unknown key '{}' in an entry of '{}'{}", member.key,
                                                          kMetrics, did_you_mean(member.key, {"name", "module"})));
    }
    if (!member.value.is_string() || member.value.text.empty()) {
      return refuse(Issue::Kind::kType, fmt::format("'{}' of an entry of '{}' must be a text, not {}", member.key,
                                                    kMetrics, describe(member.value)));
    }
    (member.key == "name" ? out.name : out.module) = member.value.text;
  }
  if (out.name.empty() || out.module.empty()) {
    return refuse(Issue::Kind::kConflict,
                  fmt::format("an entry of '{}' needs '{}': write {{\"name\": \"f1\", \"module\": \"metric.pt\"}}",
                              kMetrics, out.name.empty() ? "name" : "module"));
  }
  if (!is_plain(out.name)) {
    return refuse(Issue::Kind::kRange,
                  fmt::format("'{}': the name '{}' may have letters, digits and '_' only: it becomes 'eval_NAME' in "
                              "metrics.jsonl",
                              kMetrics, out.name));
  }
  return out;
}

std::optional<EvaluationMetric> metric_of(Settings& settings, const Value& entry) {
  if (entry.is_object()) return module_of(settings, entry);
  if (!entry.is_string()) {
    add(settings, Issue::Kind::kType, kMetrics,
        fmt::format("'{}' must be a list of names and of {{\"name\": …, \"module\": …}}, not {}", kMetrics,
                    describe(entry)));
    return std::nullopt;
  }
  if (find_named(entry.text) == nullptr) {
    add(settings, Issue::Kind::kRange, kMetrics, unknown_name(entry.text));
    return std::nullopt;
  }
  return EvaluationMetric{entry.text, ""};
}

// With errors, if the value has any.
std::vector<EvaluationMetric> read_metrics(Settings& settings) {
  std::vector<EvaluationMetric> out;
  const auto is_taken = [&](const std::string& name) {
    return name == "loss" || name == "samples" || (name == kExactMatch && sample_values(settings).exact_match) ||
           std::any_of(out.begin(), out.end(), [&](const auto& other) { return other.name == name; });
  };
  for (const auto& entry : entries_of(settings.at(kMetrics).value)) {
    const auto metric = metric_of(settings, entry);
    if (!metric) continue;
    if (is_taken(metric->name)) {
      add(settings, Issue::Kind::kConflict, kMetrics,
          fmt::format("'{}' has two values named 'eval_{}'; choose another name", kMetrics, metric->name));
      continue;
    }
    out.push_back(*metric);
  }
  return out;
}

void check_loss(Settings& settings, const std::vector<EvaluationMetric>& metrics) {
  if (!settings.at("loss").value.is_text("mse")) return;
  for (const auto& metric : metrics) {
    if (!metric.module.empty()) continue;
    add(settings, Issue::Kind::kConflict, kMetrics,
        fmt::format(
            "'{}': {} with \"loss\": \"mse\", whose labels are numbers and not classes; leave it out, or give a "
            "metric of your own: {{\"name\": …, \"module\": \"metric.pt\"}}",
            kMetrics,
            metric.name == "accuracy" ? "accuracy counts classes"
                                      : "perplexity is that of a cross "
                                        "entropy"));
  }
}

// "accuracy" and "eval_accuracy" are the same value.
std::string value_name(const std::string& metric) {
  return metric.starts_with(kPrefix) ? metric : kPrefix + metric;
}

// Beside those of train.metrics: what is known of a value that train.samples brings.
struct SampleValue {
  bool is_there = false;
  std::optional<MetricMode> mode = {};
};

SampleValue sample_value(const Settings& settings, const std::string& metric) {
  const auto values = sample_values(settings);
  if (values.exact_match && metric == kExactMatch) return {true, MetricMode::kMax};
  return {values.of_command && is_plain(metric)};
}

// Replaces the metric by its value's name and sets the mode, or adds an error.
void choose_metric(Settings& settings, const std::string& section, const std::vector<EvaluationMetric>& metrics) {
  const std::string path = section + ".metric", mode_path = section + ".mode";
  if (settings.has_error(path) || settings.has_error(mode_path)) return;
  const std::string name = value_name(settings.text(path)), metric = name.substr(kPrefix.size());
  const auto found = std::find_if(metrics.begin(), metrics.end(), [&](const auto& one) { return one.name == metric; });
  const auto of_samples = sample_value(settings, metric);
  const bool is_loss = metric == "loss", is_measured = is_loss || found != metrics.end(),
             is_there = is_measured || of_samples.is_there;
  if (!is_there && find_named(metric) != nullptr) {
    add(settings, Issue::Kind::kConflict, path,
        fmt::format("'{}' is {}, which evaluations do not measure: add \"{}\" to '{}'", path, name, metric, kMetrics));
    return;
  }
  if (!is_there) {
    std::vector<std::string> known{"eval_loss"};
    for (const auto& one : metrics) known.push_back(kPrefix + one.name);
    if (sample_values(settings).exact_match) known.push_back(std::string(kPrefix) + kExactMatch);
    add(settings, Issue::Kind::kRange, path,
        fmt::format("'{}' must be a value of the evaluations, {}, not '{}'{}; further ones come with '{}'", path,
                    join_alternatives(known), settings.text(path), did_you_mean(name, known), kMetrics));
    return;
  }
  settings.solve(path, Value::of_string(name), settings.at(path).origin);
  if (!settings.at(mode_path).value.is_null()) return;
  const NamedMetric* named = find_named(metric);
  if (!is_measured && of_samples.mode) {
    settings.solve(mode_path, EnumMember<kMetricModes>::to_value(*of_samples.mode), "default");
    return;
  }
  if (!is_loss && named == nullptr) {
    add(settings, Issue::Kind::kConflict, mode_path,
        fmt::format("'{}' is needed for {}, a metric of your own: \"min\" or \"max\", whichever is better", mode_path,
                    name));
    return;
  }
  settings.solve(mode_path, EnumMember<kMetricModes>::to_value(is_loss ? MetricMode::kMin : named->mode), "default");
}

// What decides by evaluations needs some during the run.
void check_evaluations(Settings& settings, const std::string& section) {
  const bool has_data = !settings.texts("data.eval").empty();
  if (has_data && settings.integer("train.eval_interval") > 0) return;
  add(settings, Issue::Kind::kConflict, section,
      fmt::format("'{}' decides by evaluations during the run, and there are none: set {}'train.eval_interval' to the "
                  "steps between them",
                  section, has_data ? "" : "'data.eval' and "));
}

bool is_there(const Settings& settings, const std::string& section) {
  return !settings.at(section).value.is_null();
}

void note_metrics_without_data(Settings& settings, const std::vector<EvaluationMetric>& metrics) {
  if (metrics.empty() || !settings.texts("data.eval").empty()) return;
  settings.note(kMetrics, fmt::format("'{}' belongs to evaluations: without 'data.eval' there is one with --eval_only "
                                      "only",
                                      kMetrics));
}

}  // namespace

void apply_metric_rules(Settings& settings) {
  const auto metrics = read_metrics(settings);
  if (!settings.has_error(kMetrics)) check_loss(settings, metrics);
  note_metrics_without_data(settings, metrics);
  for (const auto& section : {kEarlyStopping, kKeepBest}) {
    if (!is_there(settings, section)) continue;
    check_evaluations(settings, section);
    if (!settings.has_error(kMetrics)) choose_metric(settings, section, metrics);
  }
}

void build_metrics(const Settings& settings, Train& out) {
  for (const auto& entry : entries_of(settings.at(kMetrics).value)) {
    if (entry.is_string()) {
      out.metrics.push_back({entry.text, ""});
    } else if (entry.is_object()) {
      out.metrics.push_back({entry.find("name")->text, entry.find("module")->text});
    }
  }
}

}  // namespace dslaunch::config
