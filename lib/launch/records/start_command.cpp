#include "launch/records/start_command.hpp"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/format.hpp"
#include "base/shell_words.hpp"

namespace dslaunch::launch {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::string_view kEnv = "--env";

}  // namespace

Json start_to_json(const StartCommand& start) {
  if (start.words.empty()) return nullptr;
  return {{"program", start.program}, {"words", start.words}, {"directory", start.directory}};
}

StartCommand start_from_json(const Json& json) {
  if (!json.is_object()) return {};
  return {json.at("program").get<std::string>(), json.at("words").get<std::vector<std::string>>(),
          json.at("directory").get<std::string>()};
}

std::string command_text(const StartCommand& start) {
  return fmt::format("cd {} && {} {}", shell_word(start.directory), shell_word(start.program),
                     shell_words(start.words));
}

bool is_option(const std::string& word, std::string_view option) {
  std::string name = word.substr(0, word.find('='));
  if (name.starts_with("--")) std::replace(name.begin() + 2, name.end(), '-', '_');
  return name == option;
}

bool has_option(const std::vector<std::string>& words, std::string_view option) {
  return std::any_of(words.begin(), words.end(), [&](const std::string& word) { return is_option(word, option); });
}

bool only_evaluates(const StartCommand& start) {
  return has_option(start.words, "--eval_only");
}

std::vector<std::string> without_values_of_env(const std::vector<std::string>& words) {
  std::vector<std::string> out;
  for (auto word = words.begin(); word != words.end(); ++word) {
    if (!is_option(*word, kEnv)) {
      out.push_back(*word);
      continue;
    }
    // "--env NAME=VALUE" or "--env=NAME=VALUE"
    std::string variable = word->size() > kEnv.size() ? word->substr(kEnv.size() + 1) : "";
    if (variable.empty() && word + 1 != words.end()) variable = *++word;
    out.emplace_back(kEnv);
    out.push_back(variable.substr(0, variable.find('=')));
  }
  return out;
}

}  // namespace dslaunch::launch
