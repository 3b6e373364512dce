#include "command_options.hpp"

#include <algorithm>
#include <cctype>
#include <cstdlib>

#include "base/error.hpp"
#include "base/format.hpp"
#include "base/nearest_name.hpp"

namespace dslaunch::worker {
namespace {

[[noreturn]] void refuse(const std::string& message) {
  throw UserError(ExitCode::kUsage, message);
}

std::string normalised(std::string name) {
  std::replace(name.begin(), name.end(), '-', '_');
  return name;
}

const OptionSpec& find_option(const std::string& name, const std::vector<OptionSpec>& known) {
  std::vector<std::string> names;
  for (const auto& spec : known) {
    if (spec.name == name) return spec;
    names.push_back(spec.name);
  }
  refuse(fmt::format("unknown option --{}{}", name, did_you_mean(name, names)));
}

}  // namespace

std::string usage_of(const CommandSpec& command) {
  constexpr size_t kWidth = 110;
  std::string text, line = "  dsworker " + command.name;
  for (const auto& operand : command.operands) line += " " + operand;
  for (const auto& option : command.options) {
    std::string word = "--" + option.name + (option.value.empty() ? "" : " " + option.value);
    if (!option.is_needed) word = fmt::format("[{}]", word);
    if (line.size() + 1 + word.size() > kWidth) {
      text += line + "\n";
      line = std::string(16, ' ');
    }
    line += " " + word;
  }
  return text + line + "\n";
}

CommandOptions::CommandOptions(const std::vector<std::string>& arguments, const CommandSpec& command) {
  for (size_t i = 0; i < arguments.size(); ++i) {
    const std::string& argument = arguments[i];
    if (argument.rfind("--", 0) != 0) {
      operands_.push_back(argument);
      continue;
    }
    const size_t equals = argument.find('=');
    const std::string name = normalised(argument.substr(2, equals == std::string::npos ? equals : equals - 2));
    const OptionSpec& spec = find_option(name, command.options);
    if (spec.value.empty()) {
      if (equals != std::string::npos) refuse(fmt::format("option --{} takes no value", name));
      values_[name].emplace_back();
    } else if (equals != std::string::npos) {
      values_[name].push_back(argument.substr(equals + 1));
    } else if (i + 1 < arguments.size()) {
      values_[name].push_back(arguments[++i]);
    } else {
      refuse(fmt::format("option --{} needs a value", name));
    }
  }
  if (operands_.size() != command.operands.size()) {
    refuse(fmt::format("{} operands given, {} needed: {}", operands_.size(), command.operands.size(),
                       fmt::join(command.operands, " ")));
  }
  for (const auto& option : command.options) {
    if (option.is_needed && !has(option.name))
      refuse(fmt::format("{} needs --{} {}", command.name, option.name, option.value));
  }
}

std::optional<std::string> CommandOptions::value(const std::string& name) const {
  auto found = values_.find(name);
  return found == values_.end() ? std::nullopt : std::optional(found->second.back());
}

std::string CommandOptions::value_or(const std::string& name, const std::string& fallback) const {
  return value(name).value_or(fallback);
}

std::vector<std::string> CommandOptions::values(const std::string& name) const {
  auto found = values_.find(name);
  return found == values_.end() ? std::vector<std::string>() : found->second;
}

std::optional<int64_t> CommandOptions::integer(const std::string& name, int64_t least) const {
  auto text = value(name);
  if (!text) return std::nullopt;
  char* end = nullptr;
  errno = 0;
  const long long number = std::strtoll(text->c_str(), &end, 10);
  if (text->empty() || *end != '\0' || errno != 0 || number < least) {
    refuse(fmt::format("--{} needs an integer of at least {}, but got '{}'", name, least, *text));
  }
  return number;
}

std::optional<uint64_t> CommandOptions::bytes(const std::string& name) const {
  auto text = value(name);
  if (!text) return std::nullopt;
  static const std::pair<const char*, double> kUnits[] = {{"KB", 1e3}, {"MB", 1e6}, {"GB", 1e9}, {"TB", 1e12}};
  char* end = nullptr;
  const double count = std::strtod(text->c_str(), &end);
  std::string unit = end;
  std::transform(unit.begin(), unit.end(), unit.begin(), [](unsigned char c) { return std::toupper(c); });
  for (const auto& [known, size] : kUnits) {
    if (unit == known && end != text->c_str() && count > 0 && count * size >= 1 && count * size < 1e18) {
      return static_cast<uint64_t>(count * size);
    }
  }
  refuse(fmt::format("--{} needs a size with a unit, as 500MB or 2GB, but got '{}'", name, *text));
}

std::optional<double> CommandOptions::number(const std::string& name, double least) const {
  auto text = value(name);
  if (!text) return std::nullopt;
  char* end = nullptr;
  const double number = std::strtod(text->c_str(), &end);
  if (text->empty() || *end != '\0' || !(number >= least)) {
    refuse(fmt::format("--{} needs a number of at least {}, but got '{}'", name, least, *text));
  }
  return number;
}

}  // namespace dslaunch::worker
