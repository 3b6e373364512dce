// dsworker: the program that runs on every rank, and dslaunch's local tool for commands that need tensors.
#include <c10/util/Exception.h>
#include <torch/headeronly/version.h>

#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <new>
#include <string>
#include <vector>

#include "base/described_error.hpp"
#include "base/error.hpp"
#include "base/log.hpp"
#include "base/nearest_name.hpp"
#include "base/resource_error.hpp"
#include "base/standard_streams.hpp"
#include "commands.hpp"

namespace {

using namespace dslaunch;

struct Command {
  const worker::CommandSpec& spec;
  int (*run)(const std::vector<std::string>& arguments);
};

const std::vector<Command>& commands() {
  static const std::vector<Command> table{{worker::train_spec(), worker::train_command},
                                          {worker::infer_spec(), worker::infer_command},
                                          {worker::consolidate_spec(), worker::consolidate_command},
                                          {worker::import_spec(), worker::import_command}};
  return table;
}

std::string help() {
  std::string text = "dsworker is started by dslaunch on every rank; see dslaunch --help.\n\n";
  for (const auto& command : commands()) text += usage_of(command.spec);
  return text +
         "\ntrain is a rank of a job: RANK, WORLD_SIZE, MASTER_ADDR, MASTER_PORT in the environment, or a world of "
         "one.\n";
}

bool asks_for_help(const std::string& word) {
  return word == "--help" || word == "-h";
}

int print_help(const std::string& text) {
  std::fputs(text.c_str(), stdout);
  return 0;
}

// Output that could not be written is a failure, whichever command wrote it.
int with_output_written(int code) {
  if (code != 0 || standard_output_state() != OutputState::kFailed) return code;
  log::error("standard output did not take all that was written: is its disk full?");
  return to_int(ExitCode::kIoError);
}

int run(const std::vector<std::string>& words) {
  const std::string command = words.empty() ? "" : words[0];
  const std::vector<std::string> rest(words.begin() + (words.empty() ? 0 : 1), words.end());
  std::vector<std::string> names;
  for (const auto& known : commands()) {
    names.push_back(known.spec.name);
    if (command != known.spec.name) continue;
    if (!rest.empty() && asks_for_help(rest[0])) return print_help(usage_of(known.spec));
    return known.run(rest);
  }
  if (asks_for_help(command)) return print_help(help());
  if (command == "--version") {
    std::puts("dsworker " DSL_VERSION ", LibTorch " TORCH_VERSION);  // the launcher compares this line
    return 0;
  }
  std::fputs(help().c_str(), stderr);
  if (!command.empty()) log::error("unknown command '{}'{}", command, did_you_mean(command, names));
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
  log::error("unexpected: {}. Please report this", what);
  return to_int(ExitCode::kInternal);
}

// Exits without running the destructors of LibTorch's globals, which take longer than some steps.
[[noreturn]] void leave(int code) {
  std::fflush(nullptr);
  std::_Exit(code);
}

}  // namespace

int main(int argc, char** argv) {
  open_standard_streams();
  std::signal(SIGXFSZ, SIG_IGN);  // reaching the file size limit is a write error, like a full disk
  try {
    leave(with_output_written(run(std::vector<std::string>(argv + 1, argv + argc))));
  } catch (const Error& error) {
    log::error("{}", error.what());
    leave(to_int(error.code()));
  } catch (const std::bad_alloc&) {
    leave(out_of_memory("the system refused an allocation"));
  } catch (const c10::Error& error) {
    leave(report(error));
  } catch (const std::exception& error) {
    const DescribedError end = described(error);
    log::error("{}", end.text);
    leave(to_int(end.code));
  }
}
