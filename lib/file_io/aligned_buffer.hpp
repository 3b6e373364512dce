// Memory that O_DIRECT reads into and writes from: whole pages, zero at first, owned.
#pragma once
#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>

namespace dslaunch::file_io {

class AlignedBuffer {
 public:
  AlignedBuffer() = default;
  // Takes the memory now, so that no later access waits for a page. Throws std::bad_alloc.
  explicit AlignedBuffer(int64_t bytes);
  AlignedBuffer(AlignedBuffer&& other) noexcept : bytes_(std::exchange(other.bytes_, {})) {}
  AlignedBuffer& operator=(AlignedBuffer&& other) noexcept {
    std::swap(bytes_, other.bytes_);
    return *this;
  }
  ~AlignedBuffer();

  std::span<std::byte> bytes() const { return bytes_; }

 private:
  std::span<std::byte> bytes_;
};

}  // namespace dslaunch::file_io
