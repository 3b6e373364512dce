// Streaming XXH3 with 128 bits: detects damaged files at memory speed; does not protect against forgery.
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
  // 32 hexadecimal digits of the data so far, most significant first.
  std::string hex() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

std::string content_hash(const void* data, size_t size);

}  // namespace dslaunch::runtime
