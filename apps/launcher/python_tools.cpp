// `dslaunch export` and `dslaunch tokenize`: the tools of the directory tools, in a Python that has what they need.
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <filesystem>

#include "base/error.hpp"
#include "base/format.hpp"
#include "base/shell_words.hpp"
#include "commands.hpp"
#include "launch/process/programs.hpp"
#include "launch/process/torch_libraries.hpp"
#include "option_values.hpp"
#include "spawn/captured_process.hpp"

namespace dslaunch::launcher {
namespace {

namespace fs = std::filesystem;

struct Tool {
  const char* name;    // of the command and the file
  const char* module;  // what the tool cannot do without
  const char* package;
};

constexpr Tool kExport{"export", "torch", "torch==" DSL_TORCH_VERSION}, kTokenize{"tokenize", "numpy", "numpy"};

// Where it is installed, or in the source tree that this program was built in.
std::string path_of(const Tool& tool) {
  const fs::path programs = fs::path(launch::own_program()).parent_path();
  std::error_code ignored;
  for (const char* place : {"../share/dslaunch/tools", "../../../tools"}) {
    const fs::path path = fs::weakly_canonical(programs / place / tool.name, ignored);
    if (fs::is_regular_file(path, ignored)) return path.string();
  }
  throw UserError(ExitCode::kUnavailable,
                  fmt::format("cannot start 'dslaunch {}': the file share/dslaunch/tools/{} is missing beside {}; "
                              "install dslaunch as a whole",
                              tool.name, tool.name, programs.string()));
}

// Takes `--python PATH` out of the words, wherever it is.
std::string take_python(std::vector<std::string>& words) {
  constexpr std::string_view kOption = "--python", kJoined = "--python=";
  std::string python;
  for (auto word = words.begin(); word != words.end();) {
    const bool is_joined = word->starts_with(kJoined);
    if (!is_joined && *word != kOption) {
      ++word;
      continue;
    }
    const bool has_value = is_joined ? word->size() > kJoined.size() : word + 1 != words.end();
    if (!has_value) usage_error("--python needs a value: the path of a Python");
    python = is_joined ? word->substr(kJoined.size()) : word[1];
    word = words.erase(word, word + (is_joined ? 1 : 2));
  }
  return python;
}

bool has_module(const std::string& python, const Tool& tool) {
  const std::string code =
      fmt::format("import importlib.util, sys; sys.exit(importlib.util.find_spec('{}') is None)", tool.module);
  return spawn::run_captured({python, "-c", code}, "", /*captures_err=*/true).cause.success();
}

// The first Python that has the module: the user's choice, the one of this installation, of the active environment, of
// scripts/setup, then the system's.
std::string find_python(const Tool& tool, const std::string& chosen) {
  std::vector<std::string> tried;
  if (!chosen.empty()) {
    tried.push_back(chosen);
  } else {
    if (const char* own = std::getenv("DSLAUNCH_PYTHON"); own != nullptr && *own != '\0') tried.emplace_back(own);
    for (const auto& environment : launch::python_environments()) tried.push_back(environment + "/bin/python");
    tried.emplace_back("python3");
  }
  for (const auto& python : tried) {
    if (has_module(python, tool)) return python;
  }
  throw UserError(
      ExitCode::kUnavailable,
      fmt::format("dslaunch {} needs a Python with the package '{}', which {}: {}; install it with '{} -m "
                  "pip install {}', or name another Python with --python",
                  tool.name, tool.module, chosen.empty() ? "none of these has" : "the Python of --python does not have",
                  fmt::join(tried, ", "), shell_word(tried.front()), tool.package));
}

// Becomes the tool, whose exit code and output are the command's.
int become(const Tool& tool, const Arguments& arguments) {
  std::vector<std::string> words = arguments.words;
  const std::string chosen = take_python(words);
  std::vector<std::string> argv{find_python(tool, chosen), path_of(tool)};
  argv.insert(argv.end(), words.begin(), words.end());
  if (arguments.has_separator) argv.emplace_back("--");
  argv.insert(argv.end(), arguments.program.begin(), arguments.program.end());
  std::vector<char*> pointers;
  for (auto& word : argv) pointers.push_back(word.data());
  pointers.push_back(nullptr);
  ::setenv("DSLAUNCH_COMMAND", fmt::format("dslaunch {}", tool.name).c_str(), 1);  // its name in its messages
  std::signal(SIGXFSZ, SIG_DFL);
  ::execvp(pointers[0], pointers.data());
  throw SystemError("execvp", argv[0], errno);
}

}  // namespace

int export_command(const Arguments& arguments) {
  return become(kExport, arguments);
}

int tokenize_command(const Arguments& arguments) {
  return become(kTokenize, arguments);
}

}  // namespace dslaunch::launcher
