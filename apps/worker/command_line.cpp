#include "command_line.hpp"

#include <torch/headeronly/version.h>

namespace dslaunch::worker {

const char* version_line() {
  return "dsworker " DSL_VERSION ", LibTorch " TORCH_VERSION;
}

CommandLine::CommandLine(const std::string& command, const std::string& usage, const std::string& example)
    : command_line::CommandLine("dsworker " + command, "usage: dsworker " + usage, "  dsworker " + example + "\n",
                                version_line()) {
  app().option_defaults()->multi_option_policy(CLI::MultiOptionPolicy::TakeLast);
}

}  // namespace dslaunch::worker
