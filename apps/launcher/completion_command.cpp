// `dslaunch completion SHELL` prints a shell's script; `dslaunch complete [--describe] LINE` answers it.
#include <algorithm>
#include <cstdio>
#include <exception>

#include "base/exit_code.hpp"
#include "base/format.hpp"
#include "base/nearest_name.hpp"
#include "base/printable.hpp"
#include "commands.hpp"
#include "completion.hpp"
#include "option_values.hpp"

namespace dslaunch::launcher {

int completion_command(const Arguments& arguments) {
  std::vector<std::string> names;
  for (const auto& script : completion_scripts()) names.emplace_back(script.name);
  const std::string usage = fmt::format("dslaunch completion {}", fmt::join(names, "|"));
  const auto& words = arguments.words;
  if (std::find(words.begin(), words.end(), "--help") != words.end()) {
    const std::string text = fmt::format(
        "usage: {}\n\nPrints the script by which that shell completes commands, options, jobs and keys of the "
        "config.\n\n"
        "  source <(dslaunch completion bash)                                    in ~/.bashrc\n"
        "  dslaunch completion zsh > DIRECTORY/_dslaunch                         in a directory of $fpath\n"
        "  dslaunch completion fish > ~/.config/fish/completions/dslaunch.fish\n",
        usage);
    std::fputs(text.c_str(), stdout);
    return 0;
  }
  if (words.size() != 1) usage_error(usage);
  const auto* script = find_completion_script(words[0]);
  if (script == nullptr)
    usage_error(fmt::format("no completion for '{}'{}: {}", words[0], did_you_mean(words[0], names), usage));
  std::fputs(script->text, stdout);
  return 0;
}

int complete_command(const Arguments& arguments) {
  const auto& words = arguments.words;
  const bool describes = words.size() > 1 && words.front() == "--describe";
  if (words.empty()) return to_int(ExitCode::kUsage);
  try {
    for (const auto& [text, about] : complete(words.back())) {
      const std::string line = describes && !about.empty() ? fmt::format("{}\t{}", text, about) : text;
      std::puts(printable(line, "\t").c_str());
    }
  } catch (const std::exception&) {
    // The shell completes file names; what is wrong is said when the command runs.
  }
  return 0;
}

}  // namespace dslaunch::launcher
