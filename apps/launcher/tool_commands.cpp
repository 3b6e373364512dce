// Commands that need tensors: executed by dsworker, which replaces this process.
#include <unistd.h>

#include <cstdlib>

#include "base/error.hpp"
#include "commands.hpp"
#include "launch/plan/working_dir.hpp"
#include "launch/process/programs.hpp"
#include "options.hpp"

namespace dslaunch::launcher {

int become_worker(std::vector<std::string> words) {
  launch::working_dir();  // without a working directory, MKL would end dsworker with its own message and exit code
  words.insert(words.begin(), launch::worker_program());
  const char* inherited = std::getenv("LD_LIBRARY_PATH");
  if (auto path = launch::torch_library_path(inherited ? inherited : "")) {
    ::setenv("LD_LIBRARY_PATH", path->c_str(), 1);
  }
  std::vector<char*> argv;
  argv.reserve(words.size() + 1);
  for (auto& word : words) argv.push_back(word.data());
  argv.push_back(nullptr);
  ::execv(argv[0], argv.data());
  throw SystemError("execv", words[0], errno, ExitCode::kUnavailable);
}

int infer_command(const Arguments& arguments) {
  auto words = read_infer_options(arguments);
  return words ? become_worker(std::move(*words)) : 0;
}

int consolidate_command(const Arguments& arguments) {
  auto words = read_consolidate_options(arguments);
  return words ? become_worker(std::move(*words)) : 0;
}

int import_command(const Arguments& arguments) {
  auto words = read_import_options(arguments);
  return words ? become_worker(std::move(*words)) : 0;
}

}  // namespace dslaunch::launcher
