// XXH3 with 128 bits, streaming: finds damaged files at memory speed; no protection against a forger.
#pragma once
#include <cstddef>
#include <memory>
#include <string>

namespace dslaunch::runtime {

class ContentHash {
 public:
  ContentHash();
  ~ContentHash();
  ContentHash(const ContentHash&) = delete;
  ContentHash& operator=(const ContentHash&) = delete;

  void update(const void* data, size_t size);
  // 32 hexadecimal digits of what came so far, most significant first.
  std::string hex() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

std::string content_hash(const void* data, size_t size);

}  // namespace dslaunch::runtime
