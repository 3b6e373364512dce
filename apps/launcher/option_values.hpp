// Values of options that CLI11 does not know.
#pragma once
#include <chrono>
#include <string>

#include "command_line/option_values.hpp"

namespace dslaunch::launcher {

using command_line::usage_error;

// The duration given for the option `name`. Throws UserError(64) if `text` is not a duration, or is below `least`.
std::chrono::milliseconds read_duration(const std::string& name, const std::string& text,
                                        std::chrono::milliseconds least);

}  // namespace dslaunch::launcher
