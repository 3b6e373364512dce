#include "command_line.hpp"

#include <torch/headeronly/version.h>

namespace dslaunch::worker {

namespace {

// In a section of its own: an agent compares it before it starts ranks, without running the program.
[[gnu::section(".dslaunch.version"), gnu::used]] constexpr char kVersion[] =
    "dsworker " DSL_VERSION ", LibTorch " TORCH_VERSION;

}  // namespace

const char* version_line() {
  return kVersion;
}

CommandLine::CommandLine(const std::string& command, const std::string& usage, const std::string& example)
    : command_line::CommandLine("dsworker " + command, "usage: dsworker " + usage, "  dsworker " + example + "\n",
                                version_line()) {
  app().option_defaults()->multi_option_policy(CLI::MultiOptionPolicy::TakeLast);
}

}  // namespace dslaunch::worker
