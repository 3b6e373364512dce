// Runs a small program of a user's to its end, for what it prints. On a thread that lives as long as the program.
#pragma once
#include <string>
#include <vector>

#include "spawn/exit_cause.hpp"

namespace dslaunch::spawn {

struct CapturedProcess {
  ExitCause cause;  // of a program that could not be started: its hint says why
  std::string out, err;
};

// `argv`: as ProcessSpec has it. The program has the caller's environment and directory, and `input` as its standard
// input, which it need not read. `captures_err`: its standard error is captured, too; else it is the caller's. Throws
// SystemError(69) when the memory for its output cannot be allocated.
CapturedProcess run_captured(const std::vector<std::string>& argv, const std::string& input, bool captures_err);

}  // namespace dslaunch::spawn
