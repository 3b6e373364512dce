// Reads and writes ranges of files while the caller does something else.
//
//   engine.write(file, offset, buffer) -> ticket     returns at once
//   engine.wait(ticket)                              until the bytes are there; throws what went wrong
//
// Any thread may call; many requests are in flight. Requests are not ordered: wait for a write before its range is read
// or its buffer is changed. A request's file and buffer must live until its wait() has returned, or the engine is gone.
// Ranges, buffers and sizes may be anything; those that are multiples of kDirectAlignment bypass the page cache.
//
// A request becomes blocks of at most `block_size`, which threads of the engine's own move: each has an io_uring with
// `queue_depth` blocks in flight, or, where io_uring is forbidden, there are as many threads as blocks would be in
// flight. A thread begins new blocks when one of its own ends, so a request of several blocks, or a few requests ahead,
// keep the queue full. Short transfers, EINTR and EAGAIN are continued; a file system that refuses O_DIRECT (EINVAL)
// gets the block again through the page cache.
#pragma once
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <thread>
#include <unordered_map>
#include <vector>

#include "base/described_error.hpp"
#include "file_io/block_queue.hpp"
#include "file_io/striped_file.hpp"

namespace dslaunch::file_io {

enum class Backend {
  kBest,     // io_uring, or threads where it is not available, with a note
  kUring,    // or UserError (69)
  kThreads,  // pread and pwrite
};

struct EngineOptions {
  int64_t block_size = 1 << 20;  // bytes of one read or write; a multiple of kDirectAlignment
  int queue_depth = 8;           // blocks in flight, of one thread
  int num_threads = 1;           // aio.intra_op_parallelism
  Backend backend = Backend::kBest;
  std::vector<std::span<std::byte>> buffers;  // registered with io_uring; they must outlive the engine
  Note note;                                  // gets a line for what is not used here; empty: it is logged
  // For tests: what is put around each queue.
  std::function<std::unique_ptr<BlockQueue>(std::unique_ptr<BlockQueue>)> wrap_queue;
};

// Threads that take the place of rings, at most.
constexpr int kMaxBlockingThreads = 64;

class FileEngine {
 public:
  using Ticket = uint64_t;

  // Throws UserError (69) if the back end that was asked for is not available, std::system_error if a thread cannot be
  // started.
  explicit FileEngine(EngineOptions options);
  // Waits for the blocks in flight; requests that have not begun are dropped.
  ~FileEngine();
  FileEngine(const FileEngine&) = delete;
  FileEngine& operator=(const FileEngine&) = delete;

  // [offset, offset + buffer) lies within the file.
  Ticket read(StripedFile& file, int64_t offset, std::span<std::byte> into);
  Ticket write(StripedFile& file, int64_t offset, std::span<const std::byte> from);
  // Once for each ticket. Throws Error (74) with the directory, offset, bytes and the system's reason, when none
  // of the request's blocks is in flight any more.
  void wait(Ticket ticket);

  bool uses_uring() const { return uses_uring_; }

 private:
  struct Request {
    int64_t blocks_left = 0;
    std::optional<DescribedError> failure;
  };
  // A block on its way: what is left of it.
  struct Piece {
    Ticket ticket = 0;
    StripedFile* file = nullptr;
    int file_index = 0;
    Block block;
    int num_retries = 0;  // since bytes were moved
  };
  class Worker;

  std::vector<std::unique_ptr<BlockQueue>> make_queues();
  Ticket submit(StripedFile& file, int64_t offset, std::span<std::byte> buffer, bool is_write);
  // Adds waiting pieces to `pieces` while there are fewer than `most`; waits for the first unless `others_in_flight`.
  // False: there is nothing left to do.
  bool take(std::vector<Piece>& pieces, size_t most, bool others_in_flight);
  void finish_block(Ticket ticket, const std::optional<DescribedError>& failure);
  // All requests fail, also those to come.
  void break_down(const DescribedError& failure);
  void stop();

  // fixed after construction
  EngineOptions options_;
  bool uses_uring_ = false;
  // guarded by mutex_
  std::mutex mutex_;
  std::condition_variable waiting_changed_, request_done_;
  std::deque<Piece> waiting_;
  std::unordered_map<Ticket, Request> requests_;
  Ticket next_ticket_ = 1;
  std::optional<DescribedError> broken_;
  bool is_stopping_ = false;
  // the constructing thread
  std::vector<std::thread> threads_;
};

}  // namespace dslaunch::file_io
