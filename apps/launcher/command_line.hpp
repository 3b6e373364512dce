// A command line of dslaunch: durations, and answers to options of other launchers.
#pragma once
#include <chrono>
#include <string>

#include "arguments.hpp"
#include "command_line/command_line.hpp"
#include "option_values.hpp"

namespace dslaunch::launcher {

// What --version prints: "dslaunch 0.1.0 (commit 1a2b3c4d5e, LibTorch 2.11.0)", with the commit of the build,
// "modified" if its files differed, and the LibTorch that dsworker was built with. Without a commit where the sources
// are not a checkout.
const char* build_version();

class CommandLine : public command_line::CommandLine {
 public:
  // `usage`: one line; `examples`: shown before the options.
  CommandLine(const std::string& command, const std::string& usage, const std::string& examples);

  // Durations: "90", "10m". A duration shorter than `least` is rejected. `target`: milliseconds, or an optional of
  // them.
  template <class T>
  void duration(const std::string& name, T& target, const std::string& what,
                std::chrono::milliseconds least = std::chrono::milliseconds(0)) {
    auto take = [name, &target, least](const std::string& text) { target = read_duration(name, text, least); };
    app().add_option_function<std::string>(name, take, what)->type_name("TIME");
  }

  // False: help or the version was printed. `on_leftover_args` comes first: its error is the most specific one.
  bool parse(
      const Arguments& arguments, const command_line::OnLeftoverArgs& on_leftover_args = [](const auto&) {});

 private:
  std::string command_;
};

}  // namespace dslaunch::launcher
