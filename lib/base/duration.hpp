// Durations on the command line.
#pragma once
#include <chrono>
#include <optional>
#include <string_view>

#include "base/deadline.hpp"

namespace dslaunch {

// "90", "1.5", "90s", "500ms", "10m", "2h", "1d"; a bare number is seconds. Empty when it is none of these,
// negative, or longer than 10000 days (a clock in nanoseconds ends at 106751).
std::optional<std::chrono::milliseconds> parse_duration(std::string_view text);

// The deadline of a limit that the user may switch off: 0 is no limit.
Deadline deadline_after(std::chrono::milliseconds limit);

}  // namespace dslaunch
