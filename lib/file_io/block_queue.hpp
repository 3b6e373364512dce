// What moves single blocks between memory and a file, below the engine: several in flight, their ends in any order. An
// outcome is what the system call returned; the engine continues short transfers and retries, so that each
// implementation stays small and a test can put a faulty one in between. One thread at a time uses a queue.
#pragma once
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/result.hpp"

namespace dslaunch::file_io {

struct Block {
  int fd = -1;
  bool is_direct = false;  // fd was opened with O_DIRECT
  bool is_write = false;
  std::byte* data = nullptr;  // read into, or written from
  int64_t bytes = 0;
  int64_t offset = 0;  // in the file
};

struct BlockEnd {
  uint64_t tag = 0;
  int64_t result = 0;  // bytes moved, or -errno
};

class BlockQueue {
 public:
  virtual ~BlockQueue() = default;
  // The most blocks in flight; at least 1.
  virtual int depth() const = 0;
  // Begins a transfer. Fewer than depth() are in flight.
  virtual void push(const Block& block, uint64_t tag) = 0;
  // Waits for one of those in flight, at least one. Throws SystemError when the queue itself no longer works.
  virtual BlockEnd pop() = 0;
};

// pread and pwrite: depth 1, and push() returns after the transfer.
std::unique_ptr<BlockQueue> make_blocking_queue();

// io_uring. Blocks that lie in one of `buffers` use its registration, which saves looking up their pages; where the
// system refuses to register them (RLIMIT_MEMLOCK), `note` gets a line, and blocks are transferred without. The buffers
// must outlive the queue. Fails with the reason where the kernel, a seccomp filter or this build has no io_uring.
using Note = std::function<void(const std::string& line)>;
Result<std::unique_ptr<BlockQueue>> make_uring_queue(int depth, const std::vector<std::span<std::byte>>& buffers,
                                                     const Note& note);

}  // namespace dslaunch::file_io
