// `dslaunch plan`: what a job would do or need, before it exists.
#include <cstdio>
#include <string>
#include <variant>

#include "base/overloaded.hpp"
#include "commands.hpp"
#include "launch/plan/model_file.hpp"
#include "plan_options.hpp"

namespace dslaunch::launcher {

static int plan_model(const ModelPlan& form) {
  if (!form.model.empty()) launch::check_model_file(form.model);
  return run_worker(form.worker_words);
}

int plan_command(const Arguments& arguments) {
  const auto options = read_plan_options(arguments);
  if (!options) return 0;
  return std::visit(Overloaded{[](const ModelPlan& form) { return plan_model(form); },
                               [&](const auto& form) {
                                 std::fputs(describe(form, options->json).c_str(), stdout);
                                 return 0;
                               }},
                    options->form);
}

}  // namespace dslaunch::launcher
