// Commands that need tensors: executed by dsworker, for which this process only waits. Files of others can crash it,
// and then somebody must be there who says so.
#include <algorithm>
#include <csignal>
#include <cstdlib>

#include "base/error.hpp"
#include "base/format.hpp"
#include "base/log.hpp"
#include "base/shell_words.hpp"
#include "commands.hpp"
#include "launch/plan/working_dir.hpp"
#include "launch/process/programs.hpp"
#include "launch/process/torch_libraries.hpp"
#include "options.hpp"
#include "spawn/exit_diagnostics.hpp"
#include "spawn/process.hpp"

namespace dslaunch::launcher {

// Signals that somebody sent to end the command: no failure of dsworker.
static bool is_request_to_end(const spawn::ExitCause& cause) {
  return cause.number != SIGKILL && spawn::meaning_of_signal(cause.number).empty();
}

// The command and its files, without the options that it got here.
static std::string name_of(const std::vector<std::string>& words) {
  const auto options = std::find_if(words.begin(), words.end(), [](const auto& word) { return word.starts_with('-'); });
  return shell_words({words.begin(), options});
}

int run_worker(const std::vector<std::string>& words) {
  launch::working_dir();  // without a working directory, MKL would end dsworker with its own message and exit code
  const char* inherited = std::getenv("LD_LIBRARY_PATH");
  if (auto path = launch::torch_library_path(inherited ? inherited : "")) {
    ::setenv("LD_LIBRARY_PATH", path->c_str(), 1);
  }
  std::vector<std::string> argv{launch::worker_program()};
  argv.insert(argv.end(), words.begin(), words.end());
  spawn::ExitDiagnostics diagnostics("use a machine with more memory, or end other programs");
  auto ended = spawn::run_in_foreground(argv);
  auto& cause = ended.cause;
  constexpr int kNotLoaded = 127;  // of the loader, whose message has the library's name; dsworker never ends with it
  if (cause.kind == spawn::ExitCause::Kind::kExited && cause.number == kNotLoaded) {
    throw UserError(
        ExitCode::kUnavailable,
        fmt::format("{}: dsworker did not start: a library is missing; if it is LibTorch's: install PyTorch "
                    "2.11.0 with pip, activate its virtual environment, or set DSLAUNCH_TORCH_LIB",
                    name_of(words)));
  }
  if (cause.kind == spawn::ExitCause::Kind::kExited) return cause.number;
  if (cause.number == SIGPIPE || is_request_to_end(cause)) spawn::end_by_signal(cause.number);
  cause.hint = diagnostics.explain(cause, ended.pid, ended.cgroups);
  if (cause.number == SIGSEGV) cause.hint += "; or a file nests too deeply for its stack (ulimit -s)";
  log::error("{}: dsworker, which reads the files, was {}", name_of(words), spawn::describe(cause));
  return cause.shell_code();
}

int infer_command(const Arguments& arguments) {
  const auto words = read_infer_options(arguments);
  return words ? run_worker(*words) : 0;
}

int serve_command(const Arguments& arguments) {
  const auto words = read_serve_options(arguments);
  return words ? run_worker(*words) : 0;
}

int consolidate_command(const Arguments& arguments) {
  const auto words = read_consolidate_options(arguments);
  return words ? run_worker(*words) : 0;
}

int import_command(const Arguments& arguments) {
  const auto words = read_import_options(arguments);
  return words ? run_worker(*words) : 0;
}

}  // namespace dslaunch::launcher
