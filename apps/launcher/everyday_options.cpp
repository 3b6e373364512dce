#include "everyday_options.hpp"

#include <algorithm>
#include <map>
#include <optional>
#include <string_view>
#include <utility>

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
    const bool is_it = *word == option || (word->starts_with("--") && normal(*word) == option);
    if (!is_it) continue;
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

// A section is switched on by its `enabled`; another one has keys of its own.
std::string answer_with_section(const std::string& name, const std::string& section, const std::string& value) {
  const std::string enabled = section + ".enabled", device = section + ".device";
  if (config::find_key(enabled) != nullptr) return answer_with_key(name, enabled + "=true", value);
  if (config::find_key(device) != nullptr) return answer_with_key(name, device, value.empty() ? "cpu" : value);
  return fmt::format("{} is a section of the config: 'dslaunch config explain --key {}' shows its keys", name, section);
}

bool is_section(const std::string& key) {
  const auto* row = config::find_key(key);
  return row != nullptr && (row->kind == config::Kind::kSection || row->kind == config::Kind::kNamed);
}

std::string answer_with_option(const std::string& name, std::string_view option, const std::string& value) {
  if (option == "--num_gpus" && value.find(',') != value.npos)  // numbers of devices, as CUDA_VISIBLE_DEVICES has them
    return fmt::format("{} is {} here", name, shell_words({"--include", "localhost:" + value}));
  return fmt::format("{} is {} {} here", name, option, value.empty() ? "VALUE" : shell_word(value));
}

// mpirun's and srun's short forms.
constexpr std::pair<std::string_view, std::string_view> kShort[] = {
    {"-n", "--num_gpus"}, {"-np", "--num_gpus"}, {"-c", "--num_gpus"}, {"-N", "--num_nodes"}};

// Nothing: neither another tool's name nor a key.
std::optional<std::string> answer_to(const std::string& name, const std::string& value) {
  const auto* other = config::find_other_name("", name.substr(2));
  if (other != nullptr && !other->remark.empty()) return fmt::format("{}: {}", name, other->remark);
  if (other != nullptr && !other->option.empty()) return answer_with_option(name, other->option, value);
  const auto key = other != nullptr ? std::optional(std::string(other->key)) : key_named(name.substr(2));
  if (!key) return std::nullopt;
  return is_section(*key) ? answer_with_section(name, *key, value) : answer_with_key(name, *key, value);
}

}  // namespace

void answer_wish(const std::vector<std::string>& words, const std::vector<std::string>& leftover) {
  std::vector<std::string> answers;
  for (const auto& word : leftover) {
    const auto* short_form =
        std::find_if(std::begin(kShort), std::end(kShort), [&](const auto& row) { return row.first == word; });
    if (short_form != std::end(kShort)) {
      answers.push_back(answer_with_option(word, short_form->second, value_of(words, word)));
      continue;
    }
    if (!word.starts_with("--")) continue;
    const std::string name = normal(word);
    if (auto answer = answer_to(name, value_of(words, name))) answers.push_back(*std::move(answer));
  }
  if (answers.size() == 1) usage_error(answers.front());
  if (answers.empty()) return;
  for (const auto& answer : answers) log::error("{}", answer);
  usage_error(fmt::format("{} options are those of other programs; what says the same here is above", answers.size()));
}

void answer_generation_wish(const std::vector<std::string>& words, const std::vector<std::string>& leftover) {
  static const std::map<std::string_view, std::string_view> kOptions{{"--max_new_tokens", "--num_tokens"},
                                                                     {"--max_length", "--num_tokens"},
                                                                     {"--max_tokens", "--num_tokens"},
                                                                     {"--n_predict", "--num_tokens"},
                                                                     {"--length", "--num_tokens"},
                                                                     {"--temp", "--temperature"},
                                                                     {"--beams", "--num_beams"},
                                                                     {"--beam_size", "--num_beams"},
                                                                     {"--eos_token_id", "--stop_ids"},
                                                                     {"--text", "--prompt"},
                                                                     {"--input", "--prompt"},
                                                                     {"--prompt_file", "--prompts"},
                                                                     {"--input_file", "--prompts"}};
  for (const auto& word : leftover) {
    if (!word.starts_with("--")) continue;
    const std::string name = normal(word);
    if (name == "--do_sample") usage_error("--do_sample: leave it out: tokens are drawn unless --greedy is given");
    if (name == "--num_return_sequences")
      usage_error("--num_return_sequences: give the prompt several times; each time it gets another text");
    const auto found = kOptions.find(name);
    if (found != kOptions.end()) usage_error(answer_with_option(name, found->second, value_of(words, name)));
  }
}

}  // namespace dslaunch::launcher
