#include "everyday_options.hpp"

#include <algorithm>
#include <optional>

#include "base/format.hpp"
#include "base/log.hpp"
#include "base/shell_words.hpp"
#include "config/key_table.hpp"
#include "config/other_tools.hpp"
#include "config/settings.hpp"
#include "option_values.hpp"

namespace dslaunch::launcher {
namespace {

std::string normal(const std::string& word) {
  std::string name = word.substr(0, word.find('='));
  std::replace(name.begin() + 2, name.end(), '-', '_');
  return name;
}

// The value that was given with the option; empty: none.
std::string value_of(const std::vector<std::string>& words, const std::string& option) {
  for (auto word = words.begin(); word != words.end(); ++word) {
    if (!word->starts_with("--") || normal(*word) != option) continue;
    if (const size_t equals = word->find('='); equals != word->npos) return word->substr(equals + 1);
    return word + 1 != words.end() && !word[1].starts_with("-") ? word[1] : "";
  }
  return {};
}

// A key of the config with this name: the whole path, or the last part of one path only.
std::optional<std::string> key_named(const std::string& name) {
  const auto* alias = config::find_alias(name);
  const auto* row = config::find_key(alias != nullptr ? alias->path : name);
  if (row != nullptr) return config::is_accepted(*row) ? std::optional(std::string(row->path)) : std::nullopt;
  const auto paths = config::paths_of_name(name);
  const bool is_clear = paths.size() == 1 && config::is_accepted(*config::find_key(paths.front()));
  return is_clear ? std::optional(paths.front()) : std::nullopt;
}

// KEY=VALUE. `key` may be a switch with its value, KEY=true, that the option turns off.
std::string setting_of(const std::string& key, const std::string& value) {
  const size_t equals = key.find('=');
  if (equals == key.npos) return fmt::format("{}={}", key, value.empty() ? "VALUE" : value);
  const bool is_off = value == "0" || value == "false" || value == "False" || value == "no";
  if (is_off && key.ends_with("=max")) return key.substr(0, equals) + "=min";
  return is_off && key.ends_with("=true") ? key.substr(0, equals) + "=false" : key;
}

// Why the config does not take KEY=VALUE; empty: it does.
std::optional<std::string> refusal_of(const std::string& key, const std::string& value) {
  config::Settings settings("command line");
  settings.take_override({key, value});
  if (settings.issues().empty()) return std::nullopt;
  return settings.issues().front().message;
}

std::string answer_with_key(const std::string& name, const std::string& key, const std::string& value) {
  const std::string setting = setting_of(key, value);
  const std::string set = fmt::format("{} is a key of the config, not an option; on the command line: ", name) +
                          shell_words({"--set", setting});
  if (value.empty()) return set;
  const auto why = refusal_of(setting.substr(0, setting.find('=')), setting.substr(setting.find('=') + 1));
  if (!why) return set;
  return fmt::format("{}: {}", name, *why);
}

// Nothing: neither another tool's name nor a key.
std::optional<std::string> answer_to(const std::string& name, const std::string& value) {
  const auto* other = config::find_other_name("", name.substr(2));
  if (other != nullptr && !other->remark.empty()) return fmt::format("{}: {}", name, other->remark);
  if (other != nullptr && !other->option.empty())
    return fmt::format("{} is {} {} here", name, other->option, value.empty() ? "VALUE" : shell_word(value));
  const auto key = other != nullptr ? std::optional(std::string(other->key)) : key_named(name.substr(2));
  return key ? std::optional(answer_with_key(name, *key, value)) : std::nullopt;
}

}  // namespace

void answer_wish(const std::vector<std::string>& words, const std::vector<std::string>& leftover) {
  std::vector<std::string> answers;
  for (const auto& word : leftover) {
    if (!word.starts_with("--")) continue;
    const std::string name = normal(word);
    if (auto answer = answer_to(name, value_of(words, name))) answers.push_back(*std::move(answer));
  }
  if (answers.size() == 1) usage_error(answers.front());
  if (answers.empty()) return;
  for (const auto& answer : answers) log::error("{}", answer);
  usage_error(fmt::format("{} options are those of other programs; what says the same here is above", answers.size()));
}

}  // namespace dslaunch::launcher
