// How long ranks may take to save when they are told to stop and nobody says otherwise: between SIGTERM and SIGKILL.
#pragma once
#include <chrono>

namespace dslaunch::launch {

inline constexpr std::chrono::milliseconds kDefaultGrace{15'000};

}  // namespace dslaunch::launch
