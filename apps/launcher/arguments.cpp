#include "arguments.hpp"

#include <algorithm>
#include <filesystem>
#include <string_view>
#include <utility>

#include "base/error.hpp"
#include "base/format.hpp"
#include "base/nearest_name.hpp"
#include "commands.hpp"

namespace dslaunch::launcher {
namespace {

// What other launchers and shells have as commands, and what does it here.
constexpr std::pair<std::string_view, std::string_view> kOtherCommands[] = {
    {"kill", "'dslaunch stop JOB'"},
    {"cancel", "'dslaunch stop JOB'"},
    {"ps", "'dslaunch jobs'"},
    {"ls", "'dslaunch jobs'"},
    {"status", "'dslaunch jobs'"},
    {"tail", "'dslaunch logs -f JOB'"},
    {"watch", "'dslaunch top JOB'"},
    {"check", "'dslaunch config check FILE'"},
    {"explain", "'dslaunch config explain FILE'"},
    {"eval", "'dslaunch --eval_only [options] MODEL.pt'"},
    {"evaluate", "'dslaunch --eval_only [options] MODEL.pt'"},
    {"test", "'dslaunch --eval_only [options] MODEL.pt'"},
    {"generate", "'dslaunch infer JOB'"},
    {"convert", "'dslaunch consolidate JOB', or 'dslaunch import' for other tools' checkpoints"},
    {"merge", "'dslaunch consolidate JOB'"},
    {"python", "'dslaunch exec [options] -- python PROGRAM'"},
    {"python3", "'dslaunch exec [options] -- python3 PROGRAM'"},
    {"torchrun", "'dslaunch exec [options] -- python PROGRAM'"},
    {"deepspeed", "'dslaunch exec [options] -- python PROGRAM'"},
    {"accelerate", "'dslaunch exec [options] -- python PROGRAM'"},
    {"llamafactory-cli", "'dslaunch exec [options] -- llamafactory-cli train FILE'"},
    {"axolotl", "'dslaunch exec [options] -- axolotl train FILE'"},
    {"tune", "'dslaunch exec [options] -- tune run RECIPE'"},
    {"composer", "'dslaunch exec [options] -- python PROGRAM'"},
    {"colossalai", "'dslaunch exec [options] -- python PROGRAM'"},
    {"horovodrun", "'dslaunch exec [options] -- PROGRAM'"},
    {"mpiexec", "'dslaunch exec [options] -- PROGRAM'"},
    {"ds_report", "'dslaunch --version', and what a run lacks, the run says"},
    {"ds_io", "'dslaunch bench io'"},
    {"mpirun", "'dslaunch exec [options] -- PROGRAM'"},
    {"srun", "'dslaunch exec [options] -- PROGRAM'"},
};

// A first word that is not an option, a path or a file is rejected as a mistyped command if it resembles one.
void refuse_mistyped_command(const std::string& word) {
  std::error_code ignored;
  if (word.starts_with("-") || word.find_first_of("./") != std::string::npos) return;
  if (std::filesystem::is_regular_file(word, ignored)) return;
  const auto* other = std::find_if(std::begin(kOtherCommands), std::end(kOtherCommands),
                                   [&](const auto& row) { return row.first == word; });
  const std::string hint = other != std::end(kOtherCommands) ? fmt::format(": it is {} here", other->second)
                                                             : did_you_mean(word, command_names());
  if (hint.empty()) return;
  throw UserError(ExitCode::kUsage, fmt::format("unknown command '{}'{}; see 'dslaunch --help'", word, hint));
}

}  // namespace

Arguments split_arguments(const std::vector<std::string>& words, const std::string& invoked_as) {
  Arguments split{.invoked_as = invoked_as, .typed = words, .command = "run", .words = {}, .program = {}};
  auto word = words.begin();
  if (word != words.end() && find_command(*word) != nullptr) {
    split.command = *word++;
  } else if (word != words.end()) {
    refuse_mistyped_command(*word);
  }
  for (; word != words.end() && *word != "--"; ++word) {
    split.words.push_back(*word);
  }
  if (word != words.end()) {
    split.has_separator = true;
    split.program.assign(word + 1, words.end());
  }
  return split;
}

}  // namespace dslaunch::launcher
