// The command line that started a job, as it is kept: in the job's record for its user alone, and in the run directory
// for everybody who may read that. Plain data.
#pragma once
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>
#include <vector>

namespace dslaunch::launch {

// The command that started the job, as the user typed it.
struct StartCommand {
  std::string program;             // "dslaunch", or the path of it that was typed
  std::vector<std::string> words;  // its arguments; empty: not known
  std::string directory;           // where it was typed
  bool operator==(const StartCommand&) const = default;
};

nlohmann::ordered_json start_to_json(const StartCommand& start);
// Empty words: `json` is null, as in records of older versions. Throws nlohmann's exceptions.
StartCommand start_from_json(const nlohmann::ordered_json& json);

// As a line for a shell, in any directory.
std::string command_text(const StartCommand& start);

// Whether a word is this option ("--run_dir"), with '-' for '_' and "=value" or without.
bool is_option(const std::string& word, std::string_view option);
bool has_option(const std::vector<std::string>& words, std::string_view option);

// Whether the command that started the job only evaluates.
bool only_evaluates(const StartCommand& start);

// The words with "--env NAME" in place of --env NAME=VALUE: the values may be secrets.
std::vector<std::string> without_values_of_env(const std::vector<std::string>& words);

}  // namespace dslaunch::launch
