#include "command_line/command_line.hpp"

#include <algorithm>
#include <cstdio>
#include <memory>

#include "base/error.hpp"
#include "base/format.hpp"
#include "base/nearest_name.hpp"
#include "command_line/description.hpp"

namespace dslaunch::command_line {
namespace {

// Our own usage line and examples come first.
class WithoutUsage : public CLI::Formatter {
 public:
  std::string make_usage(const CLI::App*, std::string) const override { return {}; }
};

std::string with_underscores(std::string name) {
  if (name.starts_with("--")) std::replace(name.begin() + 2, name.end(), '-', '_');
  return name;
}

constexpr std::string_view kNeedsValue = " needs a value";

// Rewrites CLI11's messages for people.
std::string words_of(const CLI::ParseError& error) {
  std::string text = error.what();
  // Only of flags: the values of other options are checked before CLI11 converts them.
  constexpr std::string_view kFlagWithValue = "Could not convert: ";
  if (text.starts_with(kFlagWithValue)) {
    return text.substr(kFlagWithValue.size(), text.find(" = ") - kFlagWithValue.size()) + " takes no value";
  }
  const std::string name = text.substr(0, text.find(": "));
  if (text.find("At Most 1 required") != std::string::npos) return name + " is given more than once";
  return text.find("1 required") != std::string::npos ? name + std::string(kNeedsValue) : text;
}

}  // namespace

CommandLine::CommandLine(const std::string& command, const std::string& usage, const std::string& examples,
                         const std::string& version)
    : app_("", command), command_(command), usage_(usage), examples_(examples), version_(version) {
  app_.set_help_flag();
  app_.formatter(std::make_shared<WithoutUsage>());
  app_.allow_extras();
  // While the words are read, so that a wrong value does not hide the help.
  app_.add_flag_callback(
          "-h,--help", [] { throw CLI::CallForHelp(); }, "print this help")
      ->trigger_on_parse();
  app_.add_flag_callback(
          "-V,--version", [] { throw CLI::CallForVersion(); }, "print the version")
      ->trigger_on_parse();
}

std::vector<std::string> CommandLine::option_names() const {
  std::vector<std::string> names;
  for (const CLI::Option* option : app_.get_options()) {
    for (const auto& name : option->get_lnames()) names.push_back("--" + name);
  }
  return names;
}

// Writes '_' for '-' in the names of options, and "--name=" as two words, or CLI11 would take the next word as its
// value. The value of an option stays as it is, also when it begins with "--".
std::vector<std::string> CommandLine::normalized(const std::vector<std::string>& words) const {
  std::vector<std::string> out;
  for (auto word = words.begin(); word != words.end(); ++word) {
    if (*word == "--") {
      out.insert(out.end(), word, words.end());
      break;
    }
    const size_t equals = word->starts_with("--") ? word->find('=') : std::string::npos;
    const std::string name = with_underscores(word->substr(0, equals));
    const CLI::Option* option = word->starts_with("-") ? app_.get_option_no_throw(name) : nullptr;
    const bool takes_value = option != nullptr && option->get_items_expected_min() > 0;
    if (equals == std::string::npos) {
      out.push_back(name);
      if (takes_value && word + 1 != words.end()) out.push_back(*++word);
    } else if (equals + 1 == word->size()) {
      if (option != nullptr && !takes_value)
        usage_error(fmt::format("{} takes no value; see '{} --help'", name, command_));
      out.insert(out.end(), {name, ""});
    } else {
      out.push_back(name + word->substr(equals));
    }
  }
  return out;
}

// ": FILE", as the help names it.
std::string CommandLine::kind_of_value(const std::string& option) const {
  const CLI::Option* known = app_.get_option_no_throw(option);
  return known == nullptr || known->get_type_name().empty() ? "" : ": " + known->get_type_name();
}

void CommandLine::refuse_unknown(const std::vector<std::string>& words) const {
  for (const auto& word : words) {
    if (!word.starts_with("-") || word == "-") continue;
    const std::string name = word.substr(0, word.find('='));
    usage_error(
        fmt::format("unknown option {}{}; see '{} --help'", name, did_you_mean(name, option_names()), command_));
  }
  if (!words.empty()) usage_error(fmt::format("unexpected argument '{}'; see '{} --help'", words[0], command_));
}

bool CommandLine::parse(const std::vector<std::string>& words, const OnLeftoverArgs& on_leftover_args) {
  auto reversed = normalized(words);  // as CLI11 takes them
  std::reverse(reversed.begin(), reversed.end());
  std::string mistake;
  try {
    app_.parse(std::move(reversed));
  } catch (const CLI::CallForVersion&) {
    std::puts(version_.c_str());
    return false;
  } catch (const CLI::CallForHelp&) {
    if (CommandDescription* described = DescribeInstead::target()) {
      *described = {usage_, examples_, describe_options(app_)};
      return false;
    }
    const std::string text = usage_ + "\n\nExamples:\n" + examples_ + app_.help();
    std::fputs(text.c_str(), stdout);
    return false;
  } catch (const CLI::ParseError& error) {
    mistake = words_of(error);
    if (mistake.ends_with(kNeedsValue))
      mistake += kind_of_value(mistake.substr(0, mistake.size() - kNeedsValue.size()));
  }
  std::vector<std::string> leftover = app_.remaining();
  std::erase(leftover, "--");
  on_leftover_args(leftover);
  refuse_unknown(leftover);  // an unknown option explains other mistakes
  if (!mistake.empty()) usage_error(fmt::format("{}; see '{} --help'", mistake, command_));
  for (const Switch& option : switches_) {
    if (option.is_given) option.take();
  }
  return true;
}

}  // namespace dslaunch::command_line
