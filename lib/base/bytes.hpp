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
// For an engine of <random>. Not std::random_device: linked statically, that needs a glibc of the build's age.
uint32_t random_seed();
std::string to_hex(std::span<const uint8_t> bytes);
// Empty when the text is not an even number of hexadecimal digits.
std::optional<std::vector<uint8_t>> from_hex(std::string_view text);

}  // namespace dslaunch
