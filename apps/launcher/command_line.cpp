#include "command_line.hpp"

#include <algorithm>
#include <cstdio>
#include <memory>

#include "base/error.hpp"
#include "base/format.hpp"
#include "base/nearest_name.hpp"
#include "launch/commands/migration.hpp"

namespace dslaunch::launcher {
namespace {

// Our own usage line and examples come first.
class WithoutUsage : public CLI::Formatter {
 public:
  std::string make_usage(const CLI::App*, std::string) const override { return {}; }
};

// For "--name=" without a value, CLI11 would take the next word.
std::vector<std::string> with_empty_values(const std::vector<std::string>& words) {
  std::vector<std::string> out;
  for (const auto& word : words) {
    const bool is_empty = word.size() > 3 && word.starts_with("--") && word.find('=') == word.size() - 1;
    out.push_back(is_empty ? word.substr(0, word.size() - 1) : word);
    if (is_empty) out.emplace_back();
  }
  return out;
}

// Rewrites CLI11's messages about argument counts for people.
std::string words_of(const CLI::ParseError& error) {
  std::string text = error.what();
  const std::string name = text.substr(0, text.find(": "));
  if (text.find("At Most 1 required") != std::string::npos) return name + " is given more than once";
  if (text.find("1 required") != std::string::npos) return name + " needs a value";
  return text;
}

}  // namespace

CommandLine::CommandLine(const std::string& command, const std::string& usage, const std::string& examples)
    : app_("", command), command_(command), usage_(usage), examples_(examples) {
  app_.set_help_flag();
  app_.formatter(std::make_shared<WithoutUsage>());
  app_.allow_extras();
  app_.add_flag("-h,--help", help_, "print this help");
  app_.add_flag("-V,--version", version_, "print the version");
}

std::vector<std::string> CommandLine::option_names() const {
  std::vector<std::string> names;
  for (const CLI::Option* option : app_.get_options()) {
    for (const auto& name : option->get_lnames()) names.push_back("--" + name);
  }
  return names;
}

void CommandLine::refuse_unknown(const std::vector<std::string>& words) const {
  for (const auto& word : words) {
    if (!word.starts_with("-") || word == "-") continue;
    std::string answer = launch::migration_answer(word).value_or("");
    std::string name = word.substr(0, word.find('='));
    if (answer.empty()) {
      answer = fmt::format("unknown option {}{}", name, did_you_mean(name, option_names()));
    }
    throw UserError(ExitCode::kUsage, fmt::format("{}; see '{} --help'", answer, command_));
  }
  if (words.empty()) return;
  throw UserError(ExitCode::kUsage, fmt::format("unexpected argument '{}'; see '{} --help'", words[0], command_));
}

bool CommandLine::parse(const Arguments& arguments, const AnswerSlip& on_leftover_args) {
  const auto words = with_empty_values(arguments.words);
  auto asked_for = [&](const char* name, const char* letter) {
    return std::any_of(words.begin(), words.end(), [&](const auto& word) { return word == name || word == letter; });
  };
  if (asked_for("--version", "-V")) {
    std::puts("dslaunch " DSL_VERSION);
    return false;
  }
  if (asked_for("--help", "-h")) {
    std::string text = usage_ + "\n\nExamples:\n" + examples_ + app_.help();
    std::fputs(text.c_str(), stdout);
    return false;
  }
  try {
    app_.parse(std::vector<std::string>(words.rbegin(), words.rend()));
  } catch (const CLI::ParseError& error) {
    on_leftover_args(app_.remaining());
    // An unknown option is the best explanation of the parse error.
    refuse_unknown(app_.remaining());
    throw UserError(ExitCode::kUsage, fmt::format("{}; see '{} --help'", words_of(error), command_));
  }
  on_leftover_args(app_.remaining());
  refuse_unknown(app_.remaining());
  return true;
}

}  // namespace dslaunch::launcher
