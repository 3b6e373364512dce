// Causes that only the end of a program's standard error tells. Pure.
#pragma once
#include <string>

#include "spawn/exit_cause.hpp"

namespace dslaunch::spawn {

// What to do about a known last message (a shared library or an interpreter that is missing); empty: none is known.
std::string hint_in_last_words(const ExitCause& cause, const std::string& last_words);

}  // namespace dslaunch::spawn
