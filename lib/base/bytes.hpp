// Random bytes and their text form.
#pragma once
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace dslaunch {

// From getrandom(2).
std::vector<uint8_t> random_bytes(size_t count);
std::string to_hex(std::span<const uint8_t> bytes);
// Empty when the text is not an even number of hexadecimal digits.
std::optional<std::vector<uint8_t>> from_hex(std::string_view text);

}  // namespace dslaunch
