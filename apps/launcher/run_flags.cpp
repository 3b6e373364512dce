#include "run_flags.hpp"

#include "base/format.hpp"

namespace dslaunch::launcher {
namespace {

using command_line::read_whole_number;
using config::FlagValue;

void add_run_flag(CommandLine& line, const config::RunFlag& flag, config::RunFlags& to) {
  const std::string name(flag.name), what(flag.help), value_name(flag.value_name);
  const auto take = [&to, &flag](const std::string& text) { to.set(flag.name, text); };
  if (flag.value == FlagValue::kSwitch) {
    line.flag_function(
        name, [take] { take(""); }, what);
    return;
  }
  CLI::Option* option = line.app().add_option_function<std::string>(name, take, what)->type_name(value_name);
  if (flag.value == FlagValue::kNumber) {
    option->transform(CLI::Validator(read_whole_number<int64_t>, ""));
  } else {
    option->check(CLI::Validator(command_line::refuse_empty, ""));
  }
}

}  // namespace

void add_run_flags(CommandLine& line, config::FlagGroup group, config::RunFlags& flags) {
  for (const auto& flag : config::run_flags()) {
    if (flag.group == group) add_run_flag(line, flag, flags);
  }
}

void check_run_flags(const config::RunFlags& flags) {
  for (const auto& flag : config::run_flags()) {
    if (flag.value != FlagValue::kNumber || !flags.has(flag.name)) continue;
    const int64_t given = flags.number(flag.name).value(), minimum = config::minimum_of(flag);
    if (given < minimum) usage_error(fmt::format("{} {}: expected at least {}", flag.name, given, minimum));
  }
}

}  // namespace dslaunch::launcher
