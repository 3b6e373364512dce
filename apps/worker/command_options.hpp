// dsworker's command line: a command, one or two operands, options as "--name value" or "--name=value". Written by the
// launcher, and by users who start ranks by hand or with torchrun; option names are those of dslaunch.
#pragma once
#include <map>
#include <optional>
#include <string>
#include <vector>

namespace dslaunch::worker {

struct OptionSpec {
  std::string name;        // without dashes, with '_'
  std::string value = {};  // name of its value in the help; empty: it takes no value
  bool is_needed = false;
};

struct CommandSpec {
  std::string name;
  std::vector<std::string> operands;
  std::vector<OptionSpec> options;
};

// "  dsworker NAME OPERANDS [--option VALUE] ...", in lines that fit a terminal.
std::string usage_of(const CommandSpec& command);

class CommandOptions {
 public:
  // `arguments` without program and command. Throws UserError(64) for an unknown option (with the nearest known one), a
  // missing value or option, or a wrong number of operands.
  CommandOptions(const std::vector<std::string>& arguments, const CommandSpec& command);

  const std::string& operand(size_t index) const { return operands_.at(index); }
  bool has(const std::string& name) const { return values_.count(name) > 0; }
  // The last one given.
  std::optional<std::string> value(const std::string& name) const;
  std::string value_or(const std::string& name, const std::string& fallback) const;
  // All given, in order (repeatable options).
  std::vector<std::string> values(const std::string& name) const;
  // Throws UserError(64) when the value is not an integer of at least `least`.
  std::optional<int64_t> integer(const std::string& name, int64_t least) const;
  // "500MB", "2GB": decimal units KB, MB, GB, TB, as Hugging Face counts them; a unit is required. Throws
  // UserError(64).
  std::optional<uint64_t> bytes(const std::string& name) const;
  std::optional<double> number(const std::string& name, double least) const;

 private:
  std::vector<std::string> operands_;
  std::map<std::string, std::vector<std::string>> values_;
};

}  // namespace dslaunch::worker
