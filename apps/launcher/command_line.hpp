// CLI11 with dslaunch's conventions: every mistake is a UserError(64) with a suggestion, known options of other
// launchers get a message of their own, --help shows examples first.
#pragma once
#include <CLI/App.hpp>
#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>
#include <chrono>
#include <functional>
#include <optional>
#include <string>
#include <type_traits>
#include <vector>

#include "arguments.hpp"
#include "option_values.hpp"

namespace dslaunch::launcher {

template <class T>
struct OptionValue {
  using Type = T;
};
template <class T>
struct OptionValue<std::optional<T>> {
  using Type = T;
};

class CommandLine {
 public:
  // `usage`: one line; `examples`: shown before the options.
  CommandLine(const std::string& command, const std::string& usage, const std::string& examples);

  CLI::App& app() { return app_; }

  // An option with a value. `name` may hold a short form: "-H,--hostfile".
  template <class T>
  CLI::Option* value(const std::string& name, T& target, const std::string& what, const std::string& value_name) {
    using Value = typename OptionValue<T>::Type;
    CLI::Option* option = app_.add_option(name, target, what)->type_name(value_name);
    if constexpr (std::is_integral_v<Value>) {
      option->transform(CLI::Validator([](std::string& text) { return read_whole_number<Value>(text); }, ""));
    } else if constexpr (std::is_arithmetic_v<Value> || std::is_same_v<Value, std::string>) {
      option->transform(CLI::Validator(refuse_empty, ""));
    }
    return option;
  }
  // An option whose value "" means that the option was not given.
  CLI::Option* text_or_nothing(const std::string& name, std::string& target, const std::string& what,
                               const std::string& value_name) {
    return app_.add_option(name, target, what)->type_name(value_name);
  }
  CLI::Option* flag(const std::string& name, bool& target, const std::string& what) {
    return app_.add_flag(name, target, what);
  }
  // Durations: "90", "10m". A duration shorter than `least` is rejected. `target`: milliseconds, or an optional of
  // them.
  template <class T>
  void duration(const std::string& name, T& target, const std::string& what,
                std::chrono::milliseconds least = std::chrono::milliseconds(0)) {
    auto take = [name, &target, least](const std::string& text) { target = read_duration(name, text, least); };
    app_.add_option_function<std::string>(name, take, what)->type_name("TIME");
  }
  // The heading under which --help lists the following options.
  void group(const std::string& title) { app_.option_defaults()->group(title); }

  // False: help or the version was printed. `on_leftover_args` gets the leftover words before they are rejected: it may
  // throw a more specific error.
  using AnswerSlip = std::function<void(const std::vector<std::string>& leftover)>;
  bool parse(
      const Arguments& arguments, const AnswerSlip& on_leftover_args = [](const auto&) {});

 private:
  void refuse_unknown(const std::vector<std::string>& words) const;
  std::vector<std::string> option_names() const;

  CLI::App app_;
  std::string command_, usage_, examples_;
  bool help_ = false, version_ = false;
};

}  // namespace dslaunch::launcher
