// Two small hashes that give the same values on every platform and in every version: what depends on them (initial
// weights, sample order) must not change with a library.
#pragma once
#include <cstdint>
#include <string_view>

namespace dslaunch {

// The finaliser of splitmix64: a bijection whose outputs pass statistical tests.
constexpr uint64_t mix64(uint64_t x) {
  x += 0x9e3779b97f4a7c15ULL;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ULL;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebULL;
  return x ^ (x >> 31);
}

// FNV-1a, 64 bits: distinguishes inputs, but is not safe against forgery.
constexpr uint64_t fnv1a(std::string_view bytes) {
  uint64_t hash = 0xcbf29ce484222325ULL;
  for (const char byte : bytes) hash = (hash ^ static_cast<uint8_t>(byte)) * 0x100000001b3ULL;
  return hash;
}

}  // namespace dslaunch
