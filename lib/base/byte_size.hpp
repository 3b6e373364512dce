// Sizes as people write and read them. Pure; any thread.
#pragma once
#include <cstdint>
#include <optional>
#include <string>

namespace dslaunch {

// "80GiB" and "80G" in units of 1024, "80GB" in units of 1000; K, M, G, T in either case; "1.5T". Empty for anything
// else: a size needs a unit, is at least one byte and below 2^60.
std::optional<int64_t> parse_byte_size(const std::string& text);

// "79.25 GiB"
std::string gibibytes(int64_t bytes);

}  // namespace dslaunch
