// dslaunch: from one command to a running job. Every command is a function of commands.hpp; dispatch() selects it.
#include <csignal>
#include <cstdio>
#include <exception>
#include <string>

#include "base/color.hpp"
#include "base/described_error.hpp"
#include "base/log.hpp"
#include "base/standard_streams.hpp"
#include "commands.hpp"
#include "output_options.hpp"

namespace dslaunch::launcher {
namespace {

int report(ExitCode code, const std::string& message) {
  log::write(log::Level::kError, message);
  return to_int(code);
}

// Output must have been written completely, or a full disk would look like success. When the reader is gone, every
// command ends by SIGPIPE as `cat` does, whatever its parent did with SIGPIPE.
int with_output_written(int code) {
  const OutputState state = standard_output_state();
  if (state == OutputState::kReaderClosed) exit_as_sigpipe();
  if (code != 0 || state == OutputState::kWritten) return code;
  return report(ExitCode::kIoError, "cannot write all output to standard output: is its disk full?");
}

}  // namespace
}  // namespace dslaunch::launcher

int main(int argc, char** argv) {
  using namespace dslaunch;
  open_standard_streams();
  std::signal(SIGXFSZ, SIG_IGN);  // a file at its size limit is then a write error, like a full disk
  log::set_prefix("dslaunch");
  log::set_color(uses_color(launcher::color_choice({argv + 1, argv + argc}), 2));
  try {
    return launcher::with_output_written(
        launcher::dispatch({argv + 1, argv + argc}, argv[0] == nullptr ? "dslaunch" : argv[0]));
  } catch (const std::exception& error) {
    const DescribedError end = described(error);
    return launcher::report(end.code, end.text);
  }
}
