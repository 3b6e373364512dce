// The default time for ranks to save when they are told to stop: between SIGTERM and SIGKILL.
#pragma once
#include <chrono>

namespace dslaunch::launch {

inline constexpr std::chrono::milliseconds kDefaultGrace{15'000};

}  // namespace dslaunch::launch
