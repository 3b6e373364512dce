// The wait between two attempts: nothing runs, and a request to stop takes effect at once.
#pragma once
#include <chrono>

#include "launch/supervisor/attempt.hpp"

namespace dslaunch::launch {

// `attempt`: the one that has ended. Not kNone: cut short by a request to stop.
StopReason pause_before_restart(Attempt& attempt, std::chrono::milliseconds length);

}  // namespace dslaunch::launch
