#include "commands.hpp"

#include <cstdio>

#include "base/exit_code.hpp"
#include "base/format.hpp"
#include "base/log.hpp"
#include "base/nearest_name.hpp"
#include "command_line.hpp"

namespace dslaunch::worker {
namespace {

struct Command {
  const char* name;
  const char* what;
  int (*run)(const std::vector<std::string>& arguments);
};

constexpr Command kCommands[] = {
    {"train", "a rank of a job: RANK, WORLD_SIZE, MASTER_ADDR, MASTER_PORT in the environment, or a world of one",
     train_command},
    {"infer", "texts, scores and outputs of a model", infer_command},
    {"serve", "a model's texts and scores over HTTP", serve_command},
    {"consolidate", "whole weights from a checkpoint", consolidate_command},
    {"import", "a checkpoint of DeepSpeed as one of ours", import_command},
    {"bench", "training steps measured on one rank", bench_command},
    {"plan", "what a model and a config need in memory", plan_command},
};

std::string help() {
  std::string text = "dsworker is started by dslaunch on every rank; see dslaunch --help.\n\n";
  for (const auto& command : kCommands) text += fmt::format("  dsworker {:<12} {}\n", command.name, command.what);
  return text + "\n'dsworker COMMAND --help' shows the options of a command; --version the version.\n";
}

}  // namespace

int dispatch(const std::vector<std::string>& words) {
  const std::string name = words.empty() ? "" : words[0];
  std::vector<std::string> names;
  for (const auto& command : kCommands) {
    if (name == command.name) return command.run({words.begin() + 1, words.end()});
    names.emplace_back(command.name);
  }
  const bool wants_help = name == "--help" || name == "-h";
  if (wants_help || name == "--version" || name == "-V") {
    std::puts(wants_help ? help().c_str() : version_line());
    return to_int(ExitCode::kSuccess);
  }
  std::fputs(help().c_str(), stderr);
  if (!name.empty()) log::error("unknown command '{}'{}", name, did_you_mean(name, names));
  return to_int(ExitCode::kUsage);
}

}  // namespace dslaunch::worker
