#include <liburing.h>
#include <sys/uio.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "base/error.hpp"
#include "base/format.hpp"
#include "file_io/block_queue.hpp"

namespace dslaunch::file_io {
namespace {

class UringQueue final : public BlockQueue {
 public:
  UringQueue() = default;
  UringQueue(const UringQueue&) = delete;
  UringQueue& operator=(const UringQueue&) = delete;
  ~UringQueue() override {
    if (is_open_) ::io_uring_queue_exit(&ring_);
  }

  // 0, or the errno.
  int open(int depth) {
    const int error = -::io_uring_queue_init(static_cast<unsigned>(depth), &ring_, 0);
    if (error != 0) return error;
    is_open_ = true;
    depth_ = depth;
    return try_out();
  }

  // 0, or the errno. Only before the first push(). The kernel takes at most 1 GiB at once.
  int register_buffers(const std::vector<std::span<std::byte>>& buffers) {
    constexpr size_t kMost = size_t{1} << 30;
    std::vector<std::span<std::byte>> parts;
    for (const auto& each : buffers) {
      for (size_t at = 0; at < each.size(); at += kMost) {
        parts.push_back(each.subspan(at, std::min(kMost, each.size() - at)));
      }
    }
    std::vector<iovec> vectors;
    vectors.reserve(parts.size());
    for (const auto& each : parts) vectors.push_back({each.data(), each.size()});
    const int error = -::io_uring_register_buffers(&ring_, vectors.data(), static_cast<unsigned>(vectors.size()));
    if (error == 0) registered_ = std::move(parts);
    return error;
  }

  int depth() const override { return depth_; }

  void push(const Block& block, uint64_t tag) override {
    io_uring_sqe* entry = ::io_uring_get_sqe(&ring_);
    DSL_CHECK(entry != nullptr, "more blocks in flight than the queue is deep");
    prepare(*entry, block);
    ::io_uring_sqe_set_data64(entry, tag);
    ++num_unsubmitted_;
  }

  BlockEnd pop() override {
    submit_and_wait();
    io_uring_cqe* entry = nullptr;
    while (::io_uring_peek_cqe(&ring_, &entry) != 0 || entry == nullptr) submit_and_wait();
    const BlockEnd end{entry->user_data, entry->res};
    ::io_uring_cqe_seen(&ring_, entry);
    return end;
  }

 private:
  // A filter may admit the ring's creation and refuse its use, which only a first operation shows.
  int try_out() {
    io_uring_sqe* entry = ::io_uring_get_sqe(&ring_);
    ::io_uring_prep_nop(entry);
    int submitted = 0;
    while ((submitted = ::io_uring_submit_and_wait(&ring_, 1)) == -EINTR) {
    }
    if (submitted < 0) return -submitted;
    io_uring_cqe* end = nullptr;
    if (const int error = -::io_uring_peek_cqe(&ring_, &end); error != 0) return error;
    const int result = end->res;
    ::io_uring_cqe_seen(&ring_, end);
    return -std::min(result, 0);
  }

  void prepare(io_uring_sqe& entry, const Block& block) const {
    const auto bytes = static_cast<unsigned>(block.bytes);
    const auto offset = static_cast<uint64_t>(block.offset);
    const int buffer = registered_buffer(block);
    if (buffer >= 0 && block.is_write) {
      ::io_uring_prep_write_fixed(&entry, block.fd, block.data, bytes, offset, buffer);
    } else if (buffer >= 0) {
      ::io_uring_prep_read_fixed(&entry, block.fd, block.data, bytes, offset, buffer);
    } else if (block.is_write) {
      ::io_uring_prep_write(&entry, block.fd, block.data, bytes, offset);
    } else {
      ::io_uring_prep_read(&entry, block.fd, block.data, bytes, offset);
    }
  }

  int registered_buffer(const Block& block) const {
    const auto holds = [&](const std::span<std::byte>& buffer) {
      return block.data >= buffer.data() && block.data + block.bytes <= buffer.data() + buffer.size();
    };
    const auto found = std::find_if(registered_.begin(), registered_.end(), holds);
    return found == registered_.end() ? -1 : static_cast<int>(found - registered_.begin());
  }

  void submit_and_wait() {
    if (num_unsubmitted_ == 0 && ::io_uring_cq_ready(&ring_) > 0) return;
    const int submitted = ::io_uring_submit_and_wait(&ring_, 1);
    if (submitted >= 0) {
      num_unsubmitted_ -= std::min(num_unsubmitted_, submitted);
    } else if (submitted != -EINTR && submitted != -EAGAIN && submitted != -EBUSY) {
      throw SystemError("io_uring_enter", "for reads and writes of files", -submitted);
    }
  }

  io_uring ring_{};
  bool is_open_ = false;
  int depth_ = 1;
  int num_unsubmitted_ = 0;
  std::vector<std::span<std::byte>> registered_;
};

}  // namespace

Result<std::unique_ptr<BlockQueue>> make_uring_queue(int depth, const std::vector<std::span<std::byte>>& buffers,
                                                     const Note& note) {
  auto queue = std::make_unique<UringQueue>();
  if (const int error = queue->open(depth); error != 0) return Failure{describe_errno(error)};
  if (const int error = buffers.empty() ? 0 : queue->register_buffers(buffers); error != 0) {
    note(
        fmt::format("io_uring cannot register the buffers ({}; ulimit -l limits locked memory): each read and write "
                    "looks up its pages",
                    describe_errno(error)));
  }
  return std::unique_ptr<BlockQueue>(std::move(queue));
}

}  // namespace dslaunch::file_io
