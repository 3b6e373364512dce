// A command line as data, for completion in shells and for manual pages: what --help prints, before it is text.
#pragma once
#include <CLI/App.hpp>
#include <string>
#include <vector>

namespace dslaunch::command_line {

struct OptionDescription {
  std::vector<std::string> names;  // "--config", "-H"; of a positional argument its name: "MODEL"
  std::string value;               // "FILE", "auto|cpu|cuda"; empty: a switch
  std::string help;
  std::string group;  // its heading
  bool is_positional = false;
};

struct CommandDescription {
  std::string usage;     // one line
  std::string examples;  // the lines between it and the options
  std::vector<OptionDescription> options;
};

// While one lives, CommandLine::parse on this thread fills `to` where it would print the help.
class DescribeInstead {
 public:
  explicit DescribeInstead(CommandDescription& to);
  ~DescribeInstead();
  DescribeInstead(const DescribeInstead&) = delete;
  DescribeInstead& operator=(const DescribeInstead&) = delete;

  // Null: the help is printed.
  static CommandDescription* target();
};

// The options that the help shows, in its order.
std::vector<OptionDescription> describe_options(const CLI::App& app);

}  // namespace dslaunch::command_line
