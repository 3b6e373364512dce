#include "config/settings.hpp"

#include <algorithm>
#include <cmath>
#include <set>
#include <utility>

#include "base/error.hpp"
#include "base/format.hpp"
#include "base/nearest_name.hpp"
#include "base/result.hpp"
#include "base/split.hpp"
#include "config/coerce.hpp"
#include "config/key_table.hpp"
#include "config/option_list.hpp"
#include "config/other_tools.hpp"
#include "config/readers.hpp"

namespace dslaunch::config {
namespace {

// One typing error: after removing the common prefix and suffix, at most two characters remain.
bool looks_like_typo(std::string_view a, std::string_view b) {
  size_t start = 0;
  while (start < std::min(a.size(), b.size()) && a[start] == b[start]) ++start;
  size_t end = 0;
  while (end < std::min(a.size(), b.size()) - start && a[a.size() - 1 - end] == b[b.size() - 1 - end]) ++end;
  return std::max(a.size(), b.size()) - start - end <= 2;
}

std::string in_section(std::string_view section) {
  return section.empty() ? std::string() : fmt::format(" in '{}'", section);
}

Value section_marker() {
  Value value;
  value.type = Value::Type::kObject;
  return value;
}

// cpu_offload: true means device: cpu.
bool is_device_alias(const KeyAlias& alias) {
  return last_name(alias.path) == "device";
}

// JSON has no comments, so files carry them as keys: "_comment", "//", "#", "$schema".
bool is_comment(const std::string& key) {
  return key == "comment" || key.starts_with("_") || key.starts_with("//") || key.starts_with("#") ||
         key.starts_with("$");
}

// Whether "Auto" can only mean auto: the value of the key is not free text.
bool is_auto_in_other_case(const KeySpec& spec, const Value& value) {
  if (!value.is_string() || value.text.size() != 4) return false;
  const bool is_free_text = spec.kind == Kind::kString || spec.kind == Kind::kStringList || spec.kind == Kind::kAny;
  const std::string_view text = value.text;
  return !is_free_text && std::equal(text.begin(), text.end(), "auto", [](char a, char b) { return (a | 0x20) == b; });
}

void clear_positions(Value& value) {
  value.position = {};
  for (auto& item : value.items) clear_positions(item);
  for (auto& member : value.members) {
    member.position = {};
    clear_positions(member.value);
  }
}

bool is_section(const KeySpec& spec) {
  return spec.kind == Kind::kSection || spec.kind == Kind::kNamed;
}

// The feature that a key adjusts: its outermost enclosing section that is not a supported section; the key itself if
// there is none.
std::string feature_of(const KeySpec& spec) {
  for (size_t dot = spec.path.find('.'); dot != spec.path.npos; dot = spec.path.find('.', dot + 1)) {
    const std::string_view section = spec.path.substr(0, dot);
    if (find_key(section)->status != Status::kSupported) return std::string(section);
  }
  return std::string(spec.path);
}

// A feature's own switch that was given: if on, it is rejected or noted as having no counterpart; if off, nobody
// expects an effect. Either way the feature needs no further note.
bool enables_feature(const Setting& setting) {
  const KeySpec& spec = *setting.spec;
  if (!setting.given() || setting.origin == "auto" || setting.value.is_text("auto")) return false;
  if (last_name(spec.path) == "enabled" && (!setting.value.boolean || spec.status == Status::kNoCounterpart))
    return true;
  const bool switches = spec.kind == Kind::kBool || spec.kind == Kind::kEnum || !spec.later_values.empty();
  return spec.status == Status::kNotYet && (switches || is_section(spec));
}

// Why this value is refused; empty: the general reason applies.
std::string refusal_of(const KeySpec& spec, const Value& value) {
  if (spec.refusals.empty() || !value.is_string()) return {};
  const std::string start = value.text + ": ";
  return spec.refusals.starts_with(start) ? std::string(spec.refusals.substr(start.size())) : "";
}

// "0 or 1" for a key with some values that are not implemented yet; empty if there is no short list.
std::string supported_values(const KeySpec& spec) {
  std::vector<std::string> candidates;
  if (spec.kind == Kind::kEnum) candidates = enum_values(spec);
  if (spec.kind == Kind::kInt && spec.high - spec.low < 8) {
    for (double v = spec.low; v <= spec.high; ++v) candidates.push_back(std::to_string(static_cast<int64_t>(v)));
  }
  std::erase_if(candidates, [&](const std::string& name) {
    return is_unsupported(spec, spec.kind == Kind::kEnum ? Value::of_string(name) : value_of_word(name));
  });
  return candidates.empty() ? "" : join_alternatives(candidates);
}

std::vector<std::string> accepted_paths(const std::string& name) {
  auto paths = paths_of_name(name);
  std::erase_if(paths, [](const std::string& path) { return !is_accepted(*find_key(path)); });
  return paths;
}

// Suggests what an unknown key of a section was meant to be: another tool's name for a key, or a name that is near,
// here or in another section.
std::string hint_for(const std::string& section, const std::string& name) {
  if (find_key(name) && name.find('.') != name.npos && section.empty()) {
    return fmt::format(" (a dot does not open a section in a file: write {}: {{{}: …}})", section_of(name),
                       last_name(name));
  }
  const auto near_here = nearest_names(name, names_in(section));
  if (!near_here.empty() && looks_like_typo(name, near_here.front())) return did_you_mean(name, names_in(section), 2);
  if (const auto* other = find_other_name(section, name); other != nullptr && other->key != join_path(section, name)) {
    return other->remark.empty() ? fmt::format(": it is {} here", describe(*other)) : ": " + describe(*other);
  }
  if (!near_here.empty()) return did_you_mean(name, names_in(section), 2);
  if (auto paths = accepted_paths(name); !paths.empty() && paths.size() <= 3) {
    return fmt::format(" (there is '{}')", fmt::join(paths, "', '"));
  }
  std::vector<std::string> names;
  for (const auto* row : all_keys()) {
    const bool is_meant = row->path.find('*') == row->path.npos && looks_like_typo(name, last_name(row->path));
    if (is_meant) names.emplace_back(last_name(row->path));
  }
  auto near = nearest_names(name, names);
  auto paths = near.empty() ? std::vector<std::string>{} : accepted_paths(near.front());
  return paths.size() == 1 ? fmt::format(" (did you mean '{}'?)", paths.front()) : "";
}

constexpr size_t kMaxListedKeys = 16;

// "; its keys are 'dir', 'interval', …" for a section that a line can list.
std::string list_of_keys(const std::string& section) {
  std::vector<std::string> names = section.empty() ? std::vector<std::string>{} : names_in(section);
  std::erase_if(names, [&](const std::string& name) {
    const KeySpec* row = find_key(join_path(section, name));
    return row == nullptr || row->status != Status::kSupported;
  });
  if (names.empty() || names.size() > kMaxListedKeys) return {};
  return fmt::format("; its keys are '{}'", fmt::join(names, "', '"));
}

Value list_of_texts(const std::vector<std::string>& words) {
  std::vector<Value> items;
  items.reserve(words.size());
  for (const auto& word : words) items.push_back(Value::of_string(word));
  return Value::of_array(std::move(items));
}

// The key that a value in place of its section means: "optimizer": "Adam", "zero_optimization": 3, "bf16": true.
std::string as_section(const std::string& section, const Value& value) {
  for (const char* name : {"enabled", "type", "stage", "device", "train"}) {
    const KeySpec* spec = find_key(join_path(section, name));
    if (spec == nullptr || value.is_object() || value.is_array() || !coerce(*spec, value).ok()) continue;
    return fmt::format("; write {{\"{}\": {}}}", name,
                       value.is_string() ? fmt::format("\"{}\"", value.text) : describe(value));
  }
  return {};
}

// The text of an option as a value of the key: text values literally, the rest as HJSON.
Result<Value> value_of_option(const KeySpec& spec, const std::string& text) {
  bool textual = spec.kind == Kind::kString || spec.kind == Kind::kEnum || spec.kind == Kind::kStringList;
  bool quoted = !text.empty() && (text[0] == '"' || text[0] == '[');
  if (textual && text == "null") return Value{};
  if (textual && !quoted) {
    bool is_list = spec.comma_list && text.find(',') != text.npos;
    return is_list ? list_of_texts(words_between_commas(text)) : Value::of_string(text);
  }
  if (spec.kind == Kind::kStringList) {
    if (auto words = list_in_option(text)) return list_of_texts(*words);
  }
  ReadResult read = read_hjson("{v: " + text + "\n}");
  const Value* value = read.root && read.root->members.size() == 1 ? read.root->find("v") : nullptr;
  if (text.starts_with("{") && !read.problems.empty()) return Failure{read.problems.front().message};
  if (!value || !read.problems.empty()) return Value::of_string(text);
  Value out = *value;
  clear_positions(out);
  return out;
}

}  // namespace

void Settings::take_document(const Value& root) {
  origin_ = "file";
  message_source_ = source_;
  first_of_source_ = counter_;
  take_members({}, root);
}

void Settings::take_override(const Override& option) {
  origin_ = option.origin;
  message_source_ = option.origin;
  first_of_source_ = counter_;
  auto parts = split(option.key, '.');
  At section;
  for (size_t i = 0; i + 1 < parts.size(); ++i) {
    At inner = child(section, parts[i]);
    if (const auto* alias = find_alias(inner.table_path))
      inner = {std::string(alias->path), std::string(alias->path), {}};
    const KeySpec* spec = spec_at(inner, section);
    if (!spec) return unknown_key(section, parts[i], {});
    if (spec->kind != Kind::kSection && spec->kind != Kind::kNamed) {
      return add_issue(Issue::Kind::kUnknownKey, {}, option.key,
                       fmt::format("unknown key '{1}': '{0}' is not a section", inner.path, option.key));
    }
    if (!settings_.count(inner.path)) assign_section(inner, *spec, {{}, inner.path, false}, section_marker());
    section = inner;
  }
  At at = child(section, parts.back());
  const KeyAlias* alias = find_alias(at.table_path);
  const KeySpec* spec = alias ? find_key(alias->path) : spec_at(at, section);
  if (!spec) return unknown_key(section, parts.back(), {});
  bool is_switch = alias && is_device_alias(*alias);
  const auto read = is_switch ? Result<Value>(value_of_word(option.value)) : value_of_option(*spec, option.value);
  if (!read.ok())
    return add_issue(Issue::Kind::kSyntax, {}, option.key, fmt::format("'{}': {}", option.key, read.error()));
  const Value& value = *read;
  drop_value_errors(alias ? std::string(alias->path) : at.path);
  if (value.is_null() && !is_switch && !null_is_a_value(*spec)) {  // null discards the file's value
    settings_.erase(alias ? std::string(alias->path) : at.path);
    return;
  }
  if (value.is_object()) drop_below(at.path);
  take_member(section, parts.back(), {}, value);
}

Settings::At Settings::child(const At& section, const std::string& name) const {
  At at{join_path(section.path, name), join_path(section.table_path, name), section.parts};
  at.parts.push_back(name);
  return at;
}

// The row for a key of the traversal; for a user-defined name, changes the table path to the one with *.
const KeySpec* Settings::spec_at(At& at, const At& section) const {
  if (at.parts.empty()) at.parts = split(at.path, '.');
  bool dotted = at.parts.back().find('.') != std::string::npos;  // one name, not a path: only * can match it
  if (const auto* spec = dotted ? nullptr : find_key(at.table_path)) return spec;
  std::string any = join_path(section.table_path, "*");
  const auto* spec = find_key(any);
  if (spec) at.table_path = any;
  return spec;
}

void Settings::take_members(const At& section, const Value& object) {
  for (const auto& member : object.members) take_member(section, member.key, member.position, member.value);
}

void Settings::take_member(const At& section, const std::string& name, Position position, const Value& value) {
  At at = child(section, name);
  const auto* alias = name.find('.') == name.npos ? find_alias(at.table_path) : nullptr;
  if (alias) return take_alias(at, *alias, position, value);
  if (const auto* spec = spec_at(at, section)) return assign(at, *spec, {position, at.path, false}, value);
  if (origin_ == "file" && is_comment(name)) return comment_keys_.push_back(at.path);
  take_misplaced_or_unknown(section, name, position, value);
}

void Settings::take_alias(const At& written, const KeyAlias& alias, Position position, const Value& value) {
  At at{std::string(alias.path), std::string(alias.path), split(alias.path, '.')};
  Value converted = value;
  if (alias.deprecated) {
    notes_.push_back(to_line({Issue::Kind::kConflict, message_source_, position, written.path,
                              fmt::format("'{}' is deprecated: write '{}'", written.path, at.path)}));
  }
  if (alias.is_foreign) {
    notes_.push_back(to_line({Issue::Kind::kConflict, message_source_, position, written.path,
                              fmt::format("'{}' is '{}' here", written.path, at.path)}));
  }
  if (is_device_alias(alias)) {
    if (value.is_text("auto") || value.is_null()) return;
    if (!value.is_bool()) {
      return add_issue(Issue::Kind::kType, position, written.path,
                       fmt::format("'{}' must be true or false, not {}", written.path, describe(value)));
    }
    converted = Value::of_string(value.boolean ? "cpu" : "none");
  }
  assign(at, *find_key(alias.path), {position, written.path, alias.is_low_priority}, converted);
}

void Settings::take_misplaced_or_unknown(const At& section, const std::string& name, Position position,
                                         const Value& value) {
  bool own_names = section.table_path.find('*') != std::string::npos;
  const KeySpec* right = own_names ? nullptr : correct_path_of(name);
  if (right) {
    auto near = nearest_names(name, names_in(section.table_path));
    if (!near.empty() && looks_like_typo(name, near.front())) right = nullptr;
  }
  if (!right) return unknown_key(section, name, position);
  At at{std::string(right->path), std::string(right->path), split(right->path, '.')};
  std::string right_section(section_of(right->path));
  std::string written = join_path(section.path, name);
  notes_.push_back(
      to_line({Issue::Kind::kConflict, message_source_, position, written,
               fmt::format("'{}' is{} but belongs {}; read as '{}'", name,
                           section.path.empty() ? " at the top level" : in_section(section.path),
                           right_section.empty() ? "at the top level" : "in '" + right_section + "'", at.path)}));
  assign(at, *right, {position, written, true}, value);
}

void Settings::unknown_key(const At& section, const std::string& name, Position position) {
  std::string hint = list_is_full() ? "" : hint_for(section.table_path, name);
  if (hint.empty() && listed_sections_.insert(section.path).second) hint = list_of_keys(section.table_path);
  add_issue(Issue::Kind::kUnknownKey, position, join_path(section.path, name),
            fmt::format("unknown key '{}'{}{}", name, in_section(section.path), hint));
}

void Settings::assign(const At& at, const KeySpec& spec, const Given& given, const Value& value) {
  if (is_section(spec)) {
    assign_section(at, spec, given, value);
  } else {
    assign_leaf(at, spec, given, value);
  }
}

void Settings::assign_section(const At& at, const KeySpec& spec, const Given& given, const Value& value) {
  if (at.path == "zero_optimization" && value.is_bool()) {  // the deprecated form
    note(fmt::format("\"zero_optimization\": {} is deprecated: write {{stage: {}}}", value.boolean,
                     value.boolean ? 1 : 0));
    At stage{"zero_optimization.stage", "zero_optimization.stage", {"zero_optimization", "stage"}};
    return assign_leaf(stage, *find_key(stage.path), given, Value::of_int(value.boolean ? 1 : 0));
  }
  if (at.path == "checkpoint.keep_best" && (value.is_int() || value.is_float() || value.is_string())) {
    assign_section(at, spec, given, section_marker());
    At count{"checkpoint.keep_best.count", "checkpoint.keep_best.count", {"checkpoint", "keep_best", "count"}};
    return assign_leaf(count, *find_key(count.path), given, value);
  }
  if (!value.is_object() && !value.is_null()) {
    return add_issue(
        Issue::Kind::kType, value.position.line ? value.position : given.position, at.path,
        fmt::format("'{}' must be an object, not {}{}", at.path, describe(value), as_section(at.table_path, value)));
  }
  if (value.members.size() > kMaxNames && find_key(join_path(at.table_path, "*"))) {
    return add_issue(
        Issue::Kind::kRange, given.position, at.path,
        fmt::format("'{}' has {} entries, more than any job (at most {})", at.path, value.members.size(), kMaxNames));
  }
  if (given.is_low_priority && settings_.count(at.path) && settings_[at.path].order > first_of_source_ &&
      !settings_[at.path].is_low_priority) {
    notes_.push_back(fmt::format("'{}' is not used, since '{}' is given as well", given.name, at.path));
    return;
  }
  if (!given.is_low_priority && settings_.count(at.path) && settings_[at.path].is_low_priority) {
    notes_.push_back(fmt::format("'{}' is not used, since '{}' is given as well", written_as_[at.path], at.path));
    drop_below(at.path);
  }
  Setting setting{&spec, at.parts, value.is_null() ? Value{} : section_marker(), origin_, given.position};
  setting.is_low_priority = given.is_low_priority;
  setting.order = ++counter_;
  settings_[at.path] = std::move(setting);
  written_as_[at.path] = given.name;
  if (value.is_null()) drop_below(at.path);
  take_members(at, value);
}

void Settings::assign_leaf(const At& at, const KeySpec& spec, const Given& given, const Value& value) {
  if (is_auto_in_other_case(spec, value) && !value.is_text("auto")) {
    return assign_leaf(at, spec, given, Value::of_string("auto"));
  }
  Setting setting{&spec, at.parts, {}, origin_, given.position};
  setting.is_low_priority = given.is_low_priority;
  if (value.is_text("auto") && !auto_is_a_value(spec)) {
    setting.origin = "auto";
    setting.deferred = spec.auto_value == "late";
    setting.value = setting.deferred          ? Value::of_string("auto")
                    : spec.auto_value.empty() ? default_of(spec)
                                              : parse_constant(spec, spec.auto_value);
    return put(at, given, std::move(setting));
  }
  if (spec.cuts_fraction && value.is_float() && std::isfinite(value.number) &&
      value.number != std::floor(value.number)) {
    const double whole = std::floor(value.number);
    notes_.push_back(to_line({Issue::Kind::kRange, message_source_, given.position, at.path,
                              fmt::format("'{}' {} is read as {:.0f}", at.path, describe(value), whole)}));
    return assign_leaf(at, spec, given, Value::of_float(whole));
  }
  auto coerced = coerce(spec, value);
  if (!coerced.ok()) {
    return add_issue(coerced.error().out_of_range ? Issue::Kind::kRange : Issue::Kind::kType,
                     value.position.line ? value.position : given.position, at.path,
                     fmt::format("'{}' {}", at.path, coerced.error().message));
  }
  setting.value = *std::move(coerced);
  if (spec.kind == Kind::kEnum && value.is_string() && value_of_alias(spec, value.text)) {
    notes_.push_back(to_line({Issue::Kind::kConflict, message_source_, given.position, at.path,
                              fmt::format("'{}' {} is {} here", at.path, value.text, setting.value.text)}));
  }
  put(at, given, std::move(setting));
}

void Settings::put(const At& at, const Given& given, Setting setting) {
  auto before = settings_.find(at.path);
  if (before != settings_.end() && before->second.order > first_of_source_) {
    if (given.is_low_priority == before->second.is_low_priority) {
      return add_issue(
          Issue::Kind::kConflict, given.position, at.path,
          fmt::format("'{}' and '{}' are the same key; give one of them", written_as_[at.path], given.name));
    }
    const std::string& ignored_name = given.is_low_priority ? given.name : written_as_[at.path];
    notes_.push_back(fmt::format("'{}' is not used, since '{}' is given as well", ignored_name, at.path));
    if (given.is_low_priority) return;
  }
  setting.order = ++counter_;
  written_as_[at.path] = given.name;
  settings_[at.path] = std::move(setting);
}

// The values of the file that an option replaces need not be right.
void Settings::drop_value_errors(const std::string& path) {
  std::erase_if(issues_, [&](const Issue& issue) {
    const bool is_of_value = issue.kind == Issue::Kind::kType || issue.kind == Issue::Kind::kRange;
    return issue.source == source_ && issue.key == path && is_of_value;
  });
}

void Settings::drop_below(const std::string& path) {
  for (auto it = settings_.lower_bound(path + "."); it != settings_.end() && it->first.rfind(path + ".", 0) == 0;) {
    it = settings_.erase(it);
  }
}

void Settings::complete() {
  for (const auto* row : all_keys()) {
    if (row->path.find('*') != row->path.npos) continue;
    std::string path(row->path);
    if (settings_.count(path)) continue;
    settings_[path] = {row, split(path, '.'), default_of(*row)};
  }
  note_comments();
  note_keys_without_counterpart();
  reject_unsupported();
  note_ineffective_keys();
  report_missing_required();
}

void Settings::note_comments() {
  if (comment_keys_.empty()) return;
  note(fmt::format("taken as {}: '{}'", comment_keys_.size() == 1 ? "a comment" : "comments",
                   fmt::join(comment_keys_, "', '")));
}

// One line for the keys of a section that have the same reason.
void Settings::note_keys_without_counterpart() {
  std::map<std::pair<std::string_view, std::string_view>, std::vector<std::string>> by_reason;
  for (const auto& [path, setting] : settings_) {
    const KeySpec& spec = *setting.spec;
    if (spec.status != Status::kNoCounterpart || !setting.given() || is_section(spec)) continue;
    by_reason[{section_of(spec.path), spec.effect}].push_back(path);
  }
  for (auto& [reason, paths] : by_reason) {
    std::sort(paths.begin(), paths.end(),
              [&](const auto& a, const auto& b) { return settings_.at(a).order < settings_.at(b).order; });
    note(paths.front(), fmt::format("'{}' {} no counterpart here: {}", fmt::join(paths, "', '"),
                                    paths.size() == 1 ? "has" : "have", reason.second));
  }
}

// Whether a section around this key has its own switch, and it is off.
bool Settings::switched_off(const std::string& path) const {
  for (std::string section(section_of(path)); !section.empty(); section = section_of(section)) {
    const std::string enabled = section + ".enabled";
    const Setting* setting = enabled == path ? nullptr : find(enabled);
    if (setting && setting->value.is_bool() && !setting->value.boolean) return true;
  }
  return false;
}

void Settings::reject_unsupported() {
  for (const auto& [path, setting] : settings_) {
    if (!setting.given() || setting.deferred || !is_unsupported(*setting.spec, setting.value)) continue;
    if (switched_off(path)) continue;
    bool section = setting.spec->kind == Kind::kSection;
    if (section && settings_.count(path + ".enabled") && !settings_.at(path + ".enabled").value.boolean) continue;
    std::string what =
        section || setting.value.is_array() || setting.value.is_object()
            ? fmt::format("'{}'", path)
            : fmt::format("'{}' = {}", path, setting.value.is_string() ? setting.value.text : describe(setting.value));
    std::string now = supported_values(*setting.spec);
    if (const std::string reason = refusal_of(*setting.spec, setting.value); !reason.empty()) {
      add_error(Issue::Kind::kNotYet, path, fmt::format("not supported: {}: {}; supported: {}", what, reason, now));
      continue;
    }
    add_error(Issue::Kind::kNotYet, path,
              fmt::format("not supported yet: {} ({}); {}", what, setting.spec->effect,
                          now.empty()     ? "leave it out or switch it off"
                          : now == "none" ? "leave it out or set it to none"
                                          : "supported now: " + now));
  }
}

// Notes adjustments of features that are not implemented: one line per feature, none if its switch (rejected or off)
// already reports it, or if only default values were given.
void Settings::note_ineffective_keys() {
  std::set<std::string> features;
  for (const auto& [path, setting] : settings_) {
    if (enables_feature(setting)) features.insert(feature_of(*setting.spec));
  }
  for (const auto& [path, setting] : settings_) {
    const KeySpec& spec = *setting.spec;
    const bool differs = last_name(spec.path) == "enabled" ? setting.value.is_bool() && setting.value.boolean
                                                           : !same_content(setting.value, default_of(spec));
    const bool is_enabled =
        setting.given() && spec.status == Status::kTuning && !is_section(spec) && !setting.value.is_null() && differs;
    if (!is_enabled || !features.insert(feature_of(spec)).second) continue;
    const std::string feature = feature_of(spec);
    const std::string_view effect = find_key(feature)->effect;
    note(given(feature) ? feature : path, fmt::format("'{}' has no effect: not supported yet{}", feature,
                                                      effect.empty() ? "" : fmt::format(" ({})", effect)));
  }
}

void Settings::report_missing_required() {
  for (const auto* row : all_keys()) {
    std::string path(row->path), section(section_of(row->path));
    if (!row->needed || !given(section) || given(path) || has_error(path) || at(section).value.is_null()) continue;
    add_error(Issue::Kind::kConflict, section, fmt::format("'{}' needs 'enabled': true or false", section));
  }
}

const Setting* Settings::find(const std::string& path) const {
  auto found = settings_.find(path);
  return found == settings_.end() ? nullptr : &found->second;
}

const Setting& Settings::at(const std::string& path) const {
  const Setting* setting = find(path);
  DSL_CHECK(setting, "no such key of the job file: " + path);
  return *setting;
}

bool Settings::given(const std::string& path) const {
  const Setting* setting = find(path);
  return setting && setting->given();
}

std::vector<std::string> Settings::texts(const std::string& path) const {
  std::vector<std::string> out;
  for (const auto& item : at(path).value.items) out.push_back(item.text);
  return out;
}

std::string Settings::written_as(const std::string& path) const {
  auto found = written_as_.find(path);
  return found == written_as_.end() ? path : found->second;
}

void Settings::solve(const std::string& path, Value value, std::string origin) {
  Setting& setting = settings_.at(path);
  setting.value = std::move(value);
  setting.origin = std::move(origin);
  setting.deferred = false;
}

void Settings::defer(const std::string& path) {
  Setting& setting = settings_.at(path);
  setting.value = Value::of_string("auto");
  setting.origin = "auto";
  setting.deferred = true;
}

void Settings::add_error(Issue::Kind kind, const std::string& path, std::string message) {
  std::string at = path;
  while (!at.empty() && !given(at)) at = section_of(at);
  const Setting* setting = at.empty() ? nullptr : find(at);
  bool from_file = setting && setting->position.line > 0;
  std::string source = !setting || from_file ? source_ : setting->origin;
  list({kind, source, setting ? setting->position : Position{}, path, std::move(message)});
}

bool Settings::has_error(const std::string& path) const {
  return std::any_of(issues_.begin(), issues_.end(), [&](const Issue& issue) { return issue.key == path; });
}

void Settings::note(const std::string& path, std::string message) {
  const Setting* setting = find(path);
  bool from_file = setting && setting->position.line > 0;
  notes_.push_back(to_line({Issue::Kind::kConflict, !setting || from_file ? source_ : setting->origin,
                            setting ? setting->position : Position{}, path, std::move(message)}));
}

void Settings::add_issue(Issue::Kind kind, Position position, std::string key, std::string message) {
  list({kind, message_source_.empty() ? source_ : message_source_, position, std::move(key), std::move(message)});
}

void Settings::list(Issue issue) {
  if (list_is_full()) {
    ++num_unlisted_issues_;
  } else {
    issues_.push_back(std::move(issue));
  }
}

}  // namespace dslaunch::config
