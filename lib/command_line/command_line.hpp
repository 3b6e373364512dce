// CLI11 with the conventions of our programs: every mistake is a UserError(64) with a suggestion, '-' and '_' are equal
// in the names of options, --help shows usage and examples first.
#pragma once
#include <CLI/App.hpp>
#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>
#include <deque>
#include <functional>
#include <optional>
#include <string>
#include <type_traits>
#include <vector>

#include "command_line/option_values.hpp"

namespace dslaunch::command_line {

template <class T>
struct OptionValue {
  using Type = T;
};
template <class T>
struct OptionValue<std::optional<T>> {
  using Type = T;
};

// Called with the leftover words before they are rejected: it may throw a more specific error.
using OnLeftoverArgs = std::function<void(const std::vector<std::string>& leftover)>;

class CommandLine {
 public:
  // `usage`: one line; `examples`: shown before the options; `version`: the output of --version.
  CommandLine(const std::string& command, const std::string& usage, const std::string& examples,
              const std::string& version);

  CLI::App& app() { return app_; }

  // An option with a value. `name` may hold a short form: "-H,--hostfile".
  template <class T>
  CLI::Option* value(const std::string& name, T& target, const std::string& what, const std::string& value_name) {
    using Value = typename OptionValue<T>::Type;
    CLI::Option* option = app_.add_option(name, target, what)->type_name(value_name);
    if constexpr (std::is_integral_v<Value>) {
      option->transform(CLI::Validator(read_whole_number<Value>, ""));
    } else if constexpr (std::is_floating_point_v<Value>) {
      option->check(CLI::Validator(refuse_not_a_number, ""));
    } else if constexpr (std::is_same_v<Value, std::string>) {
      option->check(CLI::Validator(refuse_empty, ""));
    }
    return option;
  }
  // A number of at least `least`.
  template <class T>
  CLI::Option* value_from(double least, const std::string& name, T& target, const std::string& what,
                          const std::string& value_name) {
    const auto refuse = [least](const std::string& text) { return refuse_below(least, text); };
    return value(name, target, what, value_name)->check(CLI::Validator(refuse, ""));
  }
  // An option whose value "" means that the option was not given.
  CLI::Option* text_or_nothing(const std::string& name, std::string& target, const std::string& what,
                               const std::string& value_name) {
    return app_.add_option(name, target, what)->type_name(value_name);
  }
  CLI::Option* flag(const std::string& name, bool& target, const std::string& what) {
    return app_.add_flag(name, target, what);
  }
  // A flag for which parse() calls `take` if it was given.
  CLI::Option* flag_function(const std::string& name, const std::function<void()>& take, const std::string& what) {
    Switch& added = switches_.emplace_back(Switch{false, take});
    return app_.add_flag(name, added.is_given, what);
  }
  // The heading under which --help lists the following options.
  void group(const std::string& title) { app_.option_defaults()->group(title); }

  // False: help or the version was printed.
  bool parse(
      const std::vector<std::string>& words, const OnLeftoverArgs& on_leftover_args = [](const auto&) {});

 private:
  struct Switch {
    bool is_given = false;
    std::function<void()> take;
  };

  std::vector<std::string> normalized(const std::vector<std::string>& words) const;
  std::string kind_of_value(const std::string& option) const;
  void refuse_unknown(const std::vector<std::string>& words) const;
  std::vector<std::string> option_names() const;

  CLI::App app_;
  std::deque<Switch> switches_;  // their addresses are bound
  std::string command_, usage_, examples_, version_;
};

}  // namespace dslaunch::command_line
