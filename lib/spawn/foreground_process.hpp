// Runs a program in this process's place until it ends: with its streams, terminal, environment, directory and open
// descriptors. Call it while this process has one thread.
#pragma once
#include <string>
#include <vector>

#include "spawn/process.hpp"

namespace dslaunch::spawn {

// `argv[0]` is a path. The program stays in this process group, so that the terminal stops, continues and interrupts
// both; a signal that another process sends to this process is sent on to it. The kernel kills it when this process is
// killed. Throws SystemError(69) when it cannot be started.
EndedChild run_in_foreground(const std::vector<std::string>& argv);

}  // namespace dslaunch::spawn
