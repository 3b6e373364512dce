// A command line of dsworker. It is written by dslaunch, and by users who start ranks by hand or with torchrun; names
// of options are those of dslaunch. An option that is given again replaces the earlier value, so that users can append
// to a command.
#pragma once
#include <optional>
#include <string>

#include "command_line/command_line.hpp"

namespace dslaunch::worker {

// The output of --version; dslaunch compares it.
const char* version_line();

class CommandLine : public command_line::CommandLine {
 public:
  // `usage`: of the command, after "dsworker"; `example`: one line.
  CommandLine(const std::string& command, const std::string& usage, const std::string& example);

  CLI::Option* operand(const std::string& name, std::string& target, const std::string& what) {
    return app().add_option(name, target, what)->type_name("")->required();
  }
  // Any text, also an empty one. `target`: a string, or an optional of one.
  template <class T>
  CLI::Option* text(const std::string& name, T& target, const std::string& what, const std::string& value_name) {
    auto take = [&target](const std::string& text) { target = text; };
    return app().add_option_function<std::string>(name, take, what)->type_name(value_name);
  }
};

}  // namespace dslaunch::worker
