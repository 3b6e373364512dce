// The counters among a checkpoint's scalars, which are stored as doubles. Any thread.
#pragma once
#include <cstdint>
#include <map>
#include <optional>
#include <string>

namespace dslaunch::runtime {

// Integers below this are exact.
inline constexpr int64_t kExactIntegerLimit = int64_t{1} << 53;

// An integer from `least` to below 2^53.
bool is_count(double value, int64_t least);

// Empty when it is absent. Throws UserError(65) when it is not a count.
std::optional<int64_t> saved_count(const std::map<std::string, double>& scalars, const std::string& name,
                                   int64_t least);

}  // namespace dslaunch::runtime
