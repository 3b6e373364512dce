#include <unistd.h>

#include <cerrno>

#include "file_io/block_queue.hpp"

namespace dslaunch::file_io {
namespace {

class BlockingQueue final : public BlockQueue {
 public:
  int depth() const override { return 1; }

  void push(const Block& block, uint64_t tag) override {
    const auto bytes = static_cast<size_t>(block.bytes);
    const ssize_t moved = block.is_write ? ::pwrite(block.fd, block.data, bytes, block.offset)
                                         : ::pread(block.fd, block.data, bytes, block.offset);
    end_ = {tag, moved < 0 ? -errno : moved};
  }

  BlockEnd pop() override { return end_; }

 private:
  BlockEnd end_;
};

}  // namespace

std::unique_ptr<BlockQueue> make_blocking_queue() {
  return std::make_unique<BlockingQueue>();
}

}  // namespace dslaunch::file_io
