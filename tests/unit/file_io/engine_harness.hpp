// Bytes that can be told apart, through an engine and back.
#pragma once
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "file_io/aligned_buffer.hpp"
#include "file_io/file_engine.hpp"

namespace dslaunch::test {

inline void fill_pattern(std::span<std::byte> bytes, uint32_t seed) {
  uint32_t state = seed * 2654435761U + 1;
  for (auto& each : bytes) {
    state = state * 1664525U + 1013904223U;
    each = static_cast<std::byte>(state >> 24U);
  }
}

inline bool has_pattern(std::span<const std::byte> bytes, uint32_t seed) {
  std::vector<std::byte> expected(bytes.size());
  fill_pattern(expected, seed);
  return std::equal(bytes.begin(), bytes.end(), expected.begin());
}

// Whether the whole file comes back as it was written.
inline bool survives_round_trip(file_io::FileEngine& engine, file_io::StripedFile& file, uint32_t seed = 1) {
  const file_io::AlignedBuffer from(file.bytes()), to(file.bytes());
  fill_pattern(from.bytes(), seed);
  engine.wait(engine.write(file, 0, from.bytes()));
  engine.wait(engine.read(file, 0, to.bytes()));
  return has_pattern(to.bytes(), seed);
}

inline bool has_uring() {
  return file_io::make_uring_queue(1, {}, [](const auto&) {}).ok();
}

}  // namespace dslaunch::test
