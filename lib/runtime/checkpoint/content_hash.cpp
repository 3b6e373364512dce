#define XXH_INLINE_ALL  // header only: no library to link or ship
#include <xxhash.h>

#include "base/format.hpp"
#include "runtime/checkpoint/content_hash.hpp"

namespace dslaunch::runtime {

struct ContentHash::State {
  XXH3_state_t xxh;
};

ContentHash::ContentHash() : state_(new State) {
  XXH3_128bits_reset(&state_->xxh);
}
ContentHash::~ContentHash() = default;

void ContentHash::update(const void* data, size_t size) {
  XXH3_128bits_update(&state_->xxh, data, size);
}

std::string ContentHash::hex() const {
  const XXH128_hash_t hash = XXH3_128bits_digest(&state_->xxh);
  return fmt::format("{:016x}{:016x}", static_cast<uint64_t>(hash.high64), static_cast<uint64_t>(hash.low64));
}

std::string content_hash(const void* data, size_t size) {
  ContentHash hash;
  hash.update(data, size);
  return hash.hex();
}

}  // namespace dslaunch::runtime
