// Sizes as people write and read them. Pure; any thread.
#pragma once
#include <cstdint>
#include <optional>
#include <string>

namespace dslaunch {

// "80GiB" and "80G" in units of 1024, "80GB" in units of 1000; K, M, G, T in either case; "1.5T". Empty for anything
// else: a size needs a unit, is at least one byte and below 2^60.
std::optional<int64_t> parse_byte_size(const std::string& text);

// A unit in which sizes are written: KiB, MiB or GiB.
struct ByteUnit {
  const char* name;
  int64_t bytes;
  double count(int64_t size) const { return static_cast<double>(size) / static_cast<double>(bytes); }
};
// The largest of them of which `bytes` are at least an eighth, else KiB; GiB for no bytes.
ByteUnit unit_for(int64_t bytes);

// "79.25 GiB", "12.50 MiB"
std::string format_bytes(int64_t bytes);

}  // namespace dslaunch
