// Causes that are visible only at the end of a program's standard error. Pure.
#pragma once
#include <string>

#include "spawn/exit_cause.hpp"

namespace dslaunch::spawn {

// Advice for a known last message (a shared library or an interpreter that is missing); empty: the message is unknown.
std::string hint_in_output_tail(const ExitCause& cause, const std::string& output_tail);

}  // namespace dslaunch::spawn
