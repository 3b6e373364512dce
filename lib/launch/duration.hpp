// Lengths of time on the command line. Pure.
#pragma once
#include <chrono>
#include <optional>
#include <string_view>

namespace dslaunch::launch {

// "90", "1.5", "90s", "500ms", "10m", "2h", "1d"; a bare number is seconds. Empty when it is none of these or negative.
std::optional<std::chrono::milliseconds> parse_duration(std::string_view text);

}  // namespace dslaunch::launch
