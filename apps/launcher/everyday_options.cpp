#include "everyday_options.hpp"

#include <algorithm>
#include <filesystem>
#include <map>
#include <optional>
#include <set>
#include <string_view>
#include <utility>

#include "base/format.hpp"
#include "base/log.hpp"
#include "base/parse_int.hpp"
#include "base/shell_words.hpp"
#include "config/key_table.hpp"
#include "config/load.hpp"
#include "config/other_tools.hpp"
#include "config/settings.hpp"
#include "describe_command.hpp"
#include "option_values.hpp"

namespace dslaunch::launcher {
namespace {

struct Answer {
  std::string text;
  // The words that say the same, none: leave it out. Empty: nothing does.
  std::optional<std::vector<std::string>> instead;
  bool is_switch = false;  // on or off: another word behind it is not its value
};

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

// A parameter of a schedule needs a schedule, where no config has one: the first that has the parameter.
std::vector<std::string> words_that_set(const std::string& setting, bool has_config) {
  std::vector<std::string> words{"--set", setting};
  if (has_config || !setting.starts_with("scheduler.params.")) return words;
  const size_t equals = setting.find('=');
  for (const char* type : {"WarmupLR", "WarmupDecayLR", "WarmupCosineLR", "LRRangeTest", "OneCycle"}) {
    const std::vector<config::Override> both{{"scheduler.type", type},
                                             {setting.substr(0, equals), setting.substr(equals + 1)}};
    if (!config::load_text("{}", "", config::Format::kHjson, both).ok()) continue;
    words.insert(words.begin(), {"--set", fmt::format("scheduler.type={}", type)});
    break;
  }
  return words;
}

Answer answer_with_key(const std::string& name, const std::string& key, const std::string& value, bool has_config) {
  const std::string setting = setting_of(key, value);
  const auto words = words_that_set(setting, has_config);
  Answer answer{
      fmt::format("{} is a key of the config, not an option; on the command line: {}", name, shell_words(words)), words,
      key.find('=') != key.npos};
  if (value.empty() && !answer.is_switch) answer.instead.reset();
  if (value.empty()) return answer;
  const auto why = refusal_of(setting.substr(0, setting.find('=')), setting.substr(setting.find('=') + 1));
  if (!why) return answer;
  return {fmt::format("{}: {}", name, *why), std::nullopt};
}

// A section is switched on by its `enabled`; another one has keys of its own.
Answer answer_with_section(const std::string& name, const std::string& section, const std::string& value,
                           bool has_config) {
  const std::string enabled = section + ".enabled", device = section + ".device";
  if (config::find_key(enabled) != nullptr) return answer_with_key(name, enabled + "=true", value, has_config);
  if (config::find_key(device) != nullptr)
    return answer_with_key(name, device, value.empty() ? "cpu" : value, has_config);
  return {
      fmt::format("{} is a section of the config: 'dslaunch config explain --key {}' shows its keys", name, section),
      std::nullopt};
}

bool is_section(const std::string& key) {
  const auto* row = config::find_key(key);
  return row != nullptr && (row->kind == config::Kind::kSection || row->kind == config::Kind::kNamed);
}

Answer answer_with_option(const std::string& name, std::string_view option, const std::string& value) {
  if (value.empty()) return {fmt::format("{} is {} VALUE here", name, option), std::nullopt};
  std::vector<std::string> words{std::string(option), value};
  if (option == "--num_gpus" && value.find(',') != value.npos)  // numbers of devices, as CUDA_VISIBLE_DEVICES has them
    words = {"--include", "localhost:" + value};
  return {fmt::format("{} is {} here", name, shell_words(words)), words};
}

// mpirun's and srun's short forms.
constexpr std::pair<std::string_view, std::string_view> kShort[] = {
    {"-n", "--num_gpus"}, {"-np", "--num_gpus"}, {"-c", "--num_gpus"}, {"-N", "--num_nodes"}};

// Nothing: neither another tool's name nor a key.
std::optional<Answer> answer_to(const std::string& name, const std::string& value, bool has_config) {
  const auto* other = config::find_other_name("", name.substr(2));
  if (other != nullptr && !other->remark.empty())
    return Answer{fmt::format("{}: {}", name, other->remark), std::vector<std::string>{}};
  if (other != nullptr && !other->option.empty()) return answer_with_option(name, other->option, value);
  const auto key = other != nullptr ? std::optional(std::string(other->key)) : key_named(name.substr(2));
  if (!key) return std::nullopt;
  return is_section(*key) ? answer_with_section(name, *key, value, has_config)
                          : answer_with_key(name, *key, value, has_config);
}

// srun's -n counts the processes of all hosts, which -N says.
std::string ranks_of_host(const std::vector<std::string>& words, const std::string& count) {
  const auto all = parse_int<int>(count), hosts = parse_int<int>(value_of(words, "-N"));
  return all && hosts && *hosts > 0 && *all % *hosts == 0 ? std::to_string(*all / *hosts) : count;
}

using Answers = std::map<std::string, Answer>;  // by option

Answers answers_to(const std::vector<std::string>& words, const std::vector<std::string>& leftover,
                   std::vector<std::string>& order) {
  Answers answers;
  const bool has_config = std::any_of(
      words.begin(), words.end(), [](const auto& word) { return word == "--config" || word.starts_with("--config="); });
  for (const auto& word : leftover) {
    const auto* short_form =
        std::find_if(std::begin(kShort), std::end(kShort), [&](const auto& row) { return row.first == word; });
    const bool is_short = short_form != std::end(kShort);
    if (!is_short && !word.starts_with("--")) continue;
    const std::string name = is_short ? word : normal(word);
    std::string value = value_of(words, name);
    if (is_short && short_form->second == "--num_gpus") value = ranks_of_host(words, value);
    auto answer = is_short ? answer_with_option(name, short_form->second, value) : answer_to(name, value, has_config);
    if (answer && answers.emplace(name, *std::move(answer)).second) order.push_back(name);
  }
  return answers;
}

bool is_value(const Answer& answer, const std::string& word) {
  if (word.starts_with("-")) return false;
  static const std::set<std::string> kSwitched{"0", "1", "true", "false", "True", "False", "yes", "no"};
  if (answer.is_switch) return kSwitched.contains(word);
  return !answer.instead->empty() || !std::filesystem::path(word).has_extension();
}

// Whether a run takes the words: a model, and only options that there are.
bool has_model(const std::vector<std::string>& words) {
  const auto options = describe_command("run").options;
  bool has_one = false;
  for (auto word = words.begin(); word != words.end(); ++word) {
    if (!word->starts_with("-")) {
      has_one = true;
      continue;
    }
    const std::string name = word->starts_with("--") ? normal(*word) : *word;
    const auto option = std::find_if(options.begin(), options.end(), [&](const auto& each) {
      return std::find(each.names.begin(), each.names.end(), name) != each.names.end();
    });
    if (option == options.end()) return false;
    if (!option->value.empty() && word->find('=') == word->npos && word + 1 != words.end()) ++word;
  }
  return has_one;
}

// The command line with the answers in place of what they answer. Empty: it would not be one.
std::string line_with(const Answers& answers, const std::vector<std::string>& words) {
  std::vector<std::string> line;
  for (auto word = words.begin(); word != words.end(); ++word) {
    const auto found = answers.find(word->starts_with("--") ? normal(*word) : *word);
    if (found == answers.end()) {
      line.push_back(*word);
      continue;
    }
    const auto& [text, instead, is_switch] = found->second;
    if (!instead) return {};
    line.insert(line.end(), instead->begin(), instead->end());
    if (word->find('=') == word->npos && word + 1 != words.end() && is_value(found->second, word[1])) ++word;
  }
  if (!has_model(line)) return {};
  line.insert(line.begin(), "dslaunch");
  return shell_words(line);
}

}  // namespace

void answer_wish(const std::vector<std::string>& words, const std::vector<std::string>& leftover) {
  std::vector<std::string> order;
  const Answers answers = answers_to(words, leftover, order);
  if (answers.size() == 1) usage_error(answers.begin()->second.text);
  if (answers.empty()) return;
  for (const auto& name : order) log::error("{}", answers.at(name).text);
  const std::string line = line_with(answers, words);
  usage_error(
      fmt::format("{} options are those of other programs{}", answers.size(),
                  line.empty() ? "; what says the same here is above" : fmt::format(": did you mean '{}'?", line)));
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
    if (found != kOptions.end()) usage_error(answer_with_option(name, found->second, value_of(words, name)).text);
  }
}

}  // namespace dslaunch::launcher
