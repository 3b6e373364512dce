// dsworker: the program that runs on every rank, and dslaunch's local tool for commands that need tensors.
#include <c10/util/Exception.h>

#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <new>
#include <string>
#include <vector>

#include "base/described_error.hpp"
#include "base/error.hpp"
#include "base/format.hpp"
#include "base/log.hpp"
#include "base/nearest_name.hpp"
#include "base/resource_error.hpp"
#include "base/standard_streams.hpp"
#include "command_line.hpp"
#include "commands.hpp"

namespace {

using namespace dslaunch;

struct Command {
  const char* name;
  const char* what;
  int (*run)(const std::vector<std::string>& arguments);
};

constexpr Command kCommands[] = {
    {"train", "a rank of a job: RANK, WORLD_SIZE, MASTER_ADDR, MASTER_PORT in the environment, or a world of one",
     worker::train_command},
    {"infer", "continue a text with the weights of a checkpoint", worker::infer_command},
    {"consolidate", "whole weights from a checkpoint", worker::consolidate_command},
    {"import", "a checkpoint of DeepSpeed as one of ours", worker::import_command},
};

std::string help() {
  std::string text = "dsworker is started by dslaunch on every rank; see dslaunch --help.\n\n";
  for (const auto& command : kCommands) text += fmt::format("  dsworker {:<12} {}\n", command.name, command.what);
  return text + "\n'dsworker COMMAND --help' shows the options of a command; --version the version.\n";
}

// Output that could not be written is a failure, whichever command wrote it.
int with_output_written(int code) {
  if (code != 0 || standard_output_state() != OutputState::kFailed) return code;
  log::error("cannot write all of the standard output: is its disk full?");
  return to_int(ExitCode::kIoError);
}

int run(const std::vector<std::string>& words) {
  const std::string name = words.empty() ? "" : words[0];
  std::vector<std::string> names;
  for (const auto& command : kCommands) {
    if (name == command.name) return command.run({words.begin() + 1, words.end()});
    names.emplace_back(command.name);
  }
  const bool wants_help = name == "--help" || name == "-h";
  if (wants_help || name == "--version" || name == "-V") {
    std::puts(wants_help ? help().c_str() : worker::version_line());
    return to_int(ExitCode::kSuccess);
  }
  std::fputs(help().c_str(), stderr);
  if (!name.empty()) log::error("unknown command '{}'{}", name, did_you_mean(name, names));
  return to_int(ExitCode::kUsage);
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
  try {
    exit_process(with_output_written(run(std::vector<std::string>(argv + 1, argv + argc))));
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
