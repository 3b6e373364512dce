// train.samples: its prompts, and what texts while training need and exclude.
#include <algorithm>
#include <optional>
#include <string>
#include <vector>

#include "base/format.hpp"
#include "base/nearest_name.hpp"
#include "config/rules.hpp"

namespace dslaunch::config {
namespace {

const std::string kSamples = "train.samples", kPrompts = kSamples + ".prompts";
constexpr const char* kForm = "{\"prompt\": …, \"reference\": …}";

bool has_samples(const Settings& settings) {
  return !settings.at(kSamples).value.is_null();
}

// Adds the error, for the end of a function that returns a prompt.
std::nullopt_t refuse(Settings& settings, Issue::Kind kind, std::string message) {
  settings.add_error(kind, kPrompts, std::move(message));
  return std::nullopt;
}

bool are_ids(const Value& value) {
  return value.is_array() && !value.items.empty() &&
         std::all_of(value.items.begin(), value.items.end(),
                     [](const Value& id) { return id.is_int() && id.integer >= 0; });
}

// Of an object; empty: an error was added.
std::optional<SamplePrompt> prompt_of_object(Settings& settings, const Value& entry) {
  SamplePrompt out;
  for (const auto& [key, position, value] : entry.members) {
    const std::vector<std::string> known{"prompt", "ids", "reference"};
    if (std::find(known.begin(), known.end(), key) == known.end()) {
      return refuse(settings, Issue::Kind::kUnknownKey,
                    fmt::format("unknown key '{}' in an entry of '{}'{}", key, kPrompts, did_you_mean(key, known)));
    }
    const bool is_right = key == "ids" ? are_ids(value) : value.is_string();
    if (!is_right) {
      return refuse(settings, Issue::Kind::kType,
                    fmt::format("'{}' of an entry of '{}' must be {}, not {}", key, kPrompts,
                                key == "ids" ? "a list of ids of tokens" : "a text", describe(value)));
    }
    if (key == "prompt") out.text = value.text;
    if (key == "reference") out.reference = value.text;
    if (key != "ids") continue;
    for (const auto& id : value.items) out.ids.push_back(id.integer);
  }
  if (out.text.empty() == out.ids.empty()) {
    return refuse(settings, Issue::Kind::kConflict,
                  fmt::format("an entry of '{}' needs a prompt or ids, {}: write {}", kPrompts,
                              out.text.empty() ? "and has neither" : "and has both", kForm));
  }
  return out;
}

std::optional<SamplePrompt> prompt_of(Settings& settings, const Value& entry) {
  if (entry.is_object()) return prompt_of_object(settings, entry);
  if (!entry.is_string()) {
    return refuse(
        settings, Issue::Kind::kType,
        fmt::format("'{}' must be a list of texts and of {}, or a file, not {}", kPrompts, kForm, describe(entry)));
  }
  if (entry.text.empty()) return refuse(settings, Issue::Kind::kRange, fmt::format("'{}' has an empty text", kPrompts));
  return SamplePrompt{entry.text, {}, {}};
}

// Such as another spelling of prompts.
bool has_issue_within(const Settings& settings) {
  const auto& issues = settings.issues();
  return std::any_of(issues.begin(), issues.end(),
                     [](const Issue& issue) { return issue.key.starts_with(kSamples + "."); });
}

void check_prompts(Settings& settings) {
  const Value& given = settings.at(kPrompts).value;
  if (given.is_string() && !given.text.empty()) return;  // a file
  if (!given.is_array()) {
    refuse(settings, Issue::Kind::kType,
           fmt::format("'{}' must be a list of texts and of {}, or a file, not {}", kPrompts, kForm, describe(given)));
  } else if (given.items.empty() && !has_issue_within(settings)) {
    refuse(settings, Issue::Kind::kConflict,
           fmt::format("'{}' needs '{}': texts to continue, or a file with one a line", kSamples, kPrompts));
  }
  for (const auto& entry : given.items) prompt_of(settings, entry);
}

// A forward of one rank has to be that of the whole model.
void refuse_parts_of_models(Settings& settings) {
  const int64_t stages = settings.integer("pipeline.stages"), tensor = settings.integer("tensor_parallel.size");
  if (stages <= 1 && tensor <= 1) return;
  settings.add_error(Issue::Kind::kConflict, kSamples,
                     fmt::format("'{}' writes texts on one rank, and here the model is split over {} {}: leave '{}' "
                                 "out, and use dslaunch infer on the run's checkpoints",
                                 kSamples, stages > 1 ? stages : tensor,
                                 stages > 1 ? "stages of a pipeline" : "tensor ranks", kSamples));
}

}  // namespace

void apply_sample_rules(Settings& settings) {
  if (!has_samples(settings)) return;
  check_prompts(settings);
  refuse_parts_of_models(settings);
  if (!settings.texts("data.eval").empty()) return;
  settings.note(kSamples, fmt::format("'{}' belongs to evaluations: without 'data.eval' there is one with --eval_only "
                                      "only",
                                      kSamples));
}

SampleValues sample_values(const Settings& settings) {
  if (!has_samples(settings)) return {};
  const Value& given = settings.at(kPrompts).value;
  const bool has_reference = std::any_of(given.items.begin(), given.items.end(),
                                         [](const Value& entry) { return entry.find("reference") != nullptr; });
  return {has_reference || given.is_string(), !settings.text(kSamples + ".metric_command").empty()};
}

void build_samples(const Settings& settings, std::optional<Samples>& out) {
  if (!out) return;
  const Value& given = settings.at(kPrompts).value;
  if (given.is_string()) out->prompts_file = given.text;
  for (const auto& entry : given.items) {
    SamplePrompt prompt;
    if (entry.is_string()) prompt.text = entry.text;
    if (const Value* text = entry.find("prompt")) prompt.text = text->text;
    if (const Value* reference = entry.find("reference")) prompt.reference = reference->text;
    if (const Value* ids = entry.find("ids")) {
      for (const auto& id : ids->items) prompt.ids.push_back(id.integer);
    }
    out->prompts.push_back(std::move(prompt));
  }
}

}  // namespace dslaunch::config
