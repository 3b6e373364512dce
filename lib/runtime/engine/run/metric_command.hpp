// train.samples.metric_command: a user's command that measures generated texts.
#pragma once
#include <string>
#include <vector>

#include "runtime/telemetry/step_metrics.hpp"

namespace dslaunch::runtime::engine::run {

// Runs `command` in a shell. Its standard input has a JSON line for each text: prompt, text and, if there is one,
// reference. It prints one JSON object of numbers, whose names are letters, digits and '_'; its standard error goes
// where this process's does. Throws UserError(65) for a command that fails or prints something else.
NamedValues run_metric_command(const std::string& command, const std::vector<EvaluationSample>& texts);

}  // namespace dslaunch::runtime::engine::run
