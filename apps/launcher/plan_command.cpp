// `dslaunch plan`: what a job would do or need, before it exists.
#include <cstdio>
#include <string>
#include <variant>

#include "commands.hpp"
#include "plan_options.hpp"

namespace dslaunch::launcher {

int plan_command(const Arguments& arguments) {
  const auto options = read_plan_options(arguments);
  if (!options) return 0;
  const std::string text = std::visit([&](const auto& form) { return describe(form, options->json); }, options->form);
  std::fputs(text.c_str(), stdout);
  return 0;
}

}  // namespace dslaunch::launcher
