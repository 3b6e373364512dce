// The time of day, for files that people and other hosts read. Any thread.
#pragma once
#include <chrono>

namespace dslaunch {

inline double seconds_since_1970() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

}  // namespace dslaunch
