#include "base/bytes.hpp"

#include <sys/random.h>

#include <cstring>

#include "base/error.hpp"

namespace dslaunch {

std::vector<uint8_t> random_bytes(size_t count) {
  std::vector<uint8_t> out(count);
  size_t done = 0;
  while (done < count) {
    ssize_t got = ::getrandom(out.data() + done, count - done, 0);
    if (got < 0 && errno != EINTR) throw SystemError("getrandom", "(kernel random source)");
    if (got > 0) done += static_cast<size_t>(got);
  }
  return out;
}

uint32_t random_seed() {
  const auto bytes = random_bytes(sizeof(uint32_t));
  uint32_t seed = 0;
  std::memcpy(&seed, bytes.data(), sizeof seed);
  return seed;
}

std::string to_hex(std::span<const uint8_t> bytes) {
  static constexpr char kDigits[] = "0123456789abcdef";
  std::string out;
  for (uint8_t byte : bytes) {
    out += kDigits[byte >> 4];
    out += kDigits[byte & 15];
  }
  return out;
}

std::optional<std::vector<uint8_t>> from_hex(std::string_view text) {
  auto digit = [](char c) -> int {
    if (c >= '0' && c <= '9') return c - '0';
    if (c >= 'a' && c <= 'f') return c - 'a' + 10;
    if (c >= 'A' && c <= 'F') return c - 'A' + 10;
    return -1;
  };
  if (text.size() % 2) return std::nullopt;
  std::vector<uint8_t> out;
  for (size_t i = 0; i < text.size(); i += 2) {
    int high = digit(text[i]), low = digit(text[i + 1]);
    if (high < 0 || low < 0) return std::nullopt;
    out.push_back(static_cast<uint8_t>(high * 16 + low));
  }
  return out;
}

}  // namespace dslaunch
