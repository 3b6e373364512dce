#include "file_io/aligned_buffer.hpp"

#include <sys/mman.h>

#include <new>

namespace dslaunch::file_io {

AlignedBuffer::AlignedBuffer(int64_t bytes) {
  if (bytes <= 0) return;
  const auto length = static_cast<size_t>(bytes);
  void* memory = ::mmap(nullptr, length, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
  if (memory == MAP_FAILED) throw std::bad_alloc();
  bytes_ = {static_cast<std::byte*>(memory), length};
}

AlignedBuffer::~AlignedBuffer() {
  if (!bytes_.empty()) ::munmap(bytes_.data(), bytes_.size());
}

}  // namespace dslaunch::file_io
