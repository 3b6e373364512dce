// dsworker: the program that runs on every rank, and dslaunch's local tool for commands that need tensors.
#include <c10/util/Exception.h>

#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <new>
#include <string>

#include "base/described_error.hpp"
#include "base/error.hpp"
#include "base/format.hpp"
#include "base/log.hpp"
#include "base/resource_error.hpp"
#include "base/standard_streams.hpp"
#include "commands.hpp"
#include "runtime/state/mapped_file.hpp"

namespace {

using namespace dslaunch;

// Output that could not be written is a failure, whichever command wrote it.
int with_output_written(int code) {
  if (code != 0 || standard_output_state() != OutputState::kFailed) return code;
  log::error("cannot write all of the standard output: is its disk full?");
  return to_int(ExitCode::kIoError);
}

int out_of_memory(const std::string& what) {
  log::error("out of memory: {}. Use a smaller micro batch or a higher ZeRO stage", what);
  return to_int(ExitCode::kUnavailable);
}

// Reports a LibTorch error that no caller could explain better: its first line, without the stack.
int report(const c10::Error& error) {
  std::string what = error.what_without_backtrace();
  what = what.substr(0, what.find('\n'));
  try {
    throw_if_resource_failed(what, "this run");
  } catch (const Error& known) {
    log::error("{}", known.what());
    return to_int(known.code());
  }
  log::error("unexpected error: {}. Please report this", what);
  return to_int(ExitCode::kInternal);
}

// Exits without running the destructors of LibTorch's globals, which take longer than some steps.
[[noreturn]] void exit_process(int code) {
  std::fflush(nullptr);
  std::_Exit(code);
}

}  // namespace

int main(int argc, char** argv) {
  open_standard_streams();
  std::signal(SIGXFSZ, SIG_IGN);  // reaching the file size limit is a write error, like a full disk
  runtime::report_mapped_file_faults();
  try {
    exit_process(with_output_written(worker::dispatch({argv + 1, argv + argc})));
  } catch (const Error& error) {
    log::error("{}", error.what());
    exit_process(to_int(error.code()));
  } catch (const std::bad_alloc&) {
    exit_process(out_of_memory("the system failed to allocate memory"));
  } catch (const c10::Error& error) {
    exit_process(report(error));
  } catch (const std::exception& error) {
    const DescribedError end = described(error);
    log::error("{}", end.text);
    exit_process(to_int(end.code));
  }
}
