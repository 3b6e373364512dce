#include "config/report.hpp"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <string_view>
#include <vector>

#include "base/dump_json.hpp"
#include "base/error.hpp"
#include "base/format.hpp"
#include "base/nearest_name.hpp"
#include "base/split.hpp"
#include "config/coerce.hpp"
#include "config/fill.hpp"
#include "config/key_table.hpp"
#include "config/rules.hpp"

namespace dslaunch::config {
namespace {

using Json = nlohmann::ordered_json;

Json to_json(const Value& value) {
  switch (value.type) {
    case Value::Type::kNull:
      return nullptr;
    case Value::Type::kBool:
      return value.boolean;
    case Value::Type::kInt:
      return value.integer;
    case Value::Type::kFloat:
      return value.number;
    case Value::Type::kString:
      return value.text;
    case Value::Type::kArray: {
      Json out = Json::array();
      for (const auto& item : value.items) out.push_back(to_json(item));
      return out;
    }
    case Value::Type::kObject: {
      Json out = Json::object();
      for (const auto& member : value.members) out[member.key] = to_json(member.value);
      return out;
    }
  }
  return nullptr;
}

std::string_view name_of(Status status) {
  switch (status) {
    case Status::kSupported:
      return "supported";
    case Status::kNotYet:
      return "not supported yet";
    case Status::kTuning:
      return "of a feature that is not supported yet";
    case Status::kNoCounterpart:
      return "no counterpart";
  }
  return "";
}

bool is_section(const Setting& setting) {
  return setting.spec->kind == Kind::kSection || setting.spec->kind == Kind::kNamed;
}

// Settings whose paths start with the prefix, in the order of the table; then those with user-defined names, in the
// order in which they were given.
std::vector<std::pair<std::string, const Setting*>> in_order(const Settings& settings, const std::string& start = "") {
  std::vector<std::pair<std::string, const Setting*>> out, rest;
  for (const auto* row : all_keys()) {
    if (!row->path.starts_with(start)) continue;
    std::string path(row->path);
    if (const Setting* setting = settings.find(path)) out.emplace_back(path, setting);
  }
  const auto& all = settings.all();
  for (auto it = all.lower_bound(start); it != all.end() && it->first.starts_with(start); ++it) {
    const auto& [path, setting] = *it;
    if (setting.spec->path.find('*') != std::string_view::npos) rest.emplace_back(path, &setting);
  }
  std::sort(rest.begin(), rest.end(), [](const auto& a, const auto& b) { return a.second->order < b.second->order; });
  out.insert(out.end(), rest.begin(), rest.end());
  return out;
}

// A setting's value; for a section that is present, its given members and their defaults.
Json value_json(const Settings& settings, const std::string& path, const Setting& setting) {
  if (!is_section(setting) || setting.value.is_null()) return to_json(setting.value);
  Json out = Json::object();
  for (const auto& [inner_path, inner] : in_order(settings, path + ".")) {
    if (is_section(*inner)) continue;
    Json* at = &out;
    for (size_t i = setting.parts.size(); i < inner->parts.size(); ++i) at = &(*at)[inner->parts[i]];
    *at = to_json(inner->value);
  }
  return out;
}

Json batch_json(const LoadResult& result) {
  if (result.batch_explanation.empty()) return nullptr;
  const Settings& s = result.settings;
  return {{"train_batch_size", s.integer("train_batch_size")},
          {"train_micro_batch_size_per_gpu", s.integer("train_micro_batch_size_per_gpu")},
          {"gradient_accumulation_steps", s.integer("gradient_accumulation_steps")},
          {"world_size", result.world_size},
          {"data_ranks", result.data_ranks},
          {"explanation", result.batch_explanation}};
}

Json errors_json(const LoadResult& result) {
  Json out = Json::array();
  for (const auto& issue : result.issues) {
    Json error = {{"file", issue.source}};
    error["line"] = issue.position.line ? Json(issue.position.line) : Json(nullptr);
    error["column"] = issue.position.line ? Json(issue.position.column) : Json(nullptr);
    error["key"] = issue.key.empty() ? Json(nullptr) : Json(issue.key);
    error["kind"] = name_of(issue.kind);
    error["message"] = issue.message;
    out.push_back(std::move(error));
  }
  return out;
}

Json common_json(const LoadResult& result) {
  return {{"file", result.source.empty() ? Json(nullptr) : Json(result.source)},
          {"world_size", result.world_size},
          {"world_size_assumed", result.world_size_assumed},
          {"batch", batch_json(result)},
          {"errors", errors_json(result)},
          {"notes", result.notes}};
}

// A section that may be absent as a whole gets a line of its own: init, data.synthetic.
bool is_listed(const Setting& setting) {
  return !is_section(setting) || !setting.spec->effect.empty();
}

bool is_chosen(const KeyChoice& choice, const std::string& path, const Setting& setting) {
  const bool is_there = choice.path.empty() || path == choice.path || path.starts_with(choice.path + ".");
  if (!is_there || !choice.changed) return is_there;
  return setting.origin != "default" && (setting.deferred || !same_content(setting.value, default_of(*setting.spec)));
}

// In a text a key that does nothing is listed if it was given or asked for.
bool is_in_text(const KeyChoice& choice, const Setting& setting) {
  return choice.all || !choice.path.empty() || setting.given() || setting.spec->status == Status::kSupported;
}

constexpr size_t kWidth = 100, kNameColumns = 34, kEffectIndent = 6;

// Words in lines of kWidth columns.
std::string wrapped(const std::string& text, size_t indent) {
  std::string out, line;
  for (const auto& word : split(text, ' ')) {
    if (!line.empty() && indent + line.size() + 1 + word.size() > kWidth) {
      out += std::string(indent, ' ') + line + "\n";
      line.clear();
    }
    line += (line.empty() ? "" : " ") + word;
  }
  return out + std::string(indent, ' ') + line + "\n";
}

// True for parameters of the chosen optimizer and schedule, false for those of other types.
bool belongs_to_choice(const Settings& settings, const std::string& path) {
  auto section = section_of(path);
  if (section == "optimizer.params") return optimizer_accepts(settings.text("optimizer.type"), last_name(path));
  if (section_of(section) == "scheduler" || section == "scheduler.params" || path == "scheduler.type") {
    const std::string& type = settings.text("scheduler.type");
    return !type.empty() && (path == "scheduler.type" || scheduler_accepts(type, last_name(path)));
  }
  return true;
}

std::string position_text(const Setting& setting) {
  return setting.position.line ? fmt::format("{} {}:{}", setting.origin, setting.position.line, setting.position.column)
                               : setting.origin;
}

}  // namespace

std::string check_json(const LoadResult& result) {
  Json json = {{"ok", result.ok()}};
  json.update(common_json(result));
  return dump_json(json, 2);
}

std::string check_text(const LoadResult& result) {
  std::string out;
  for (const auto& issue : result.issues) out += to_line(issue) + "\n";
  if (result.ok()) {
    for (const auto& note : result.notes) out += "note: " + note + "\n";
    if (!result.batch_explanation.empty()) out += "batch: " + result.batch_explanation + "\n";
  }
  std::string name = result.source.empty() ? "the job" : result.source;
  size_t count = result.num_unlisted > 0 ? kMaxIssues + result.num_unlisted : result.issues.size();
  out += count ? fmt::format("{}: {} error{}\n", name, count, count == 1 ? "" : "s") : name + ": fine\n";
  return out;
}

std::string explain_json(const LoadResult& result, const KeyChoice& choice) {
  Json keys = Json::object();
  for (const auto& [path, setting] : in_order(result.settings)) {
    if (!is_listed(*setting) || !is_chosen(choice, path, *setting)) continue;
    Json& key = keys[path];
    key["value"] = value_json(result.settings, path, *setting);
    key["origin"] = setting->origin;
    key["effect"] = setting->spec->effect;
    key["status"] = name_of(setting->spec->status);
    if (setting->position.line) {
      key["line"] = setting->position.line;
      key["column"] = setting->position.column;
    }
  }
  Json json = {{"keys", std::move(keys)}};
  json.update(common_json(result));
  return dump_json(json, 2);
}

std::string explain_text(const LoadResult& result, const KeyChoice& choice) {
  std::string out;
  std::string section = "?";
  size_t num_left_out = 0;
  for (const auto& [path, setting] : in_order(result.settings)) {
    if (!is_listed(*setting) || !is_chosen(choice, path, *setting)) continue;
    if (!is_in_text(choice, *setting)) {
      ++num_left_out;
      continue;
    }
    const std::string own_section(section_of(path));
    if (own_section != section) {
      section = own_section;
      out += fmt::format("{}{}\n", out.empty() ? "" : "\n", section.empty() ? "top level" : section);
    }
    const std::string name = section.empty() ? path : path.substr(section.size() + 1);
    out += fmt::format("  {:<{}}  {:<16}  {}\n", name, kNameColumns,
                       dump_json(value_json(result.settings, path, *setting)), position_text(*setting));
    std::string effect(setting->spec->effect);
    if (setting->spec->status != Status::kSupported) effect += fmt::format(" ({})", name_of(setting->spec->status));
    if (!effect.empty()) out += wrapped(effect, kEffectIndent);
  }
  if (num_left_out > 0) {
    out += fmt::format("\n{} keys that have no effect here and were not given: --all lists them\n", num_left_out);
  }
  return out + (out.empty() ? "" : "\n") + check_text(result);
}

std::string find_key_by_name(const std::string& name) {
  if (find_key(name) != nullptr) return name;
  if (const KeyAlias* alias = find_alias(name)) return std::string(alias->path);
  const auto paths = paths_of_name(name);
  if (paths.size() == 1) return paths.front();
  if (!paths.empty()) {
    throw UserError(ExitCode::kUsage, fmt::format("--key {}: which one? {}", name, fmt::join(paths, ", ")));
  }
  std::vector<std::string> known;
  for (const auto* row : all_keys()) known.emplace_back(row->path);
  throw UserError(ExitCode::kUsage, fmt::format("--key {}: unknown key{}", name, did_you_mean(name, known)));
}

std::string resolved_json(const LoadResult& result) {
  DSL_CHECK(result.ok(), "a job file with issues has no resolved form");
  Json root = Json::object();
  for (const auto& [path, setting] : in_order(result.settings)) {
    const KeySpec& spec = *setting->spec;
    bool wanted = setting->given() || spec.status == Status::kSupported;
    if (!wanted || !belongs_to_choice(result.settings, path)) continue;
    if (is_section(*setting) && !setting->value.is_null()) continue;  // written through its members
    const bool inside_null = is_in_absent_section(result.settings, spec);
    const bool implied_section = is_section(*setting) && !spec.absent_by_default;
    if (inside_null || implied_section) continue;
    Json* at = &root;
    for (const auto& part : setting->parts) at = &(*at)[part];
    *at = to_json(setting->value);
  }
  return dump_json(root, 2);
}

std::vector<std::string> auto_keys(const LoadResult& result) {
  std::vector<std::pair<int, std::string>> found;
  for (const auto& [path, setting] : result.settings.all()) {
    const bool is_auto = setting.given() && (setting.origin == "auto" || setting.deferred);
    if (is_auto && !is_section(setting) && setting.spec->status == Status::kSupported) {
      found.emplace_back(setting.order, path);
    }
  }
  std::sort(found.begin(), found.end());
  std::vector<std::string> out;
  for (auto& [order, path] : found) out.push_back(std::move(path));
  return out;
}

}  // namespace dslaunch::config
