#include "file_io/file_engine.hpp"

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <utility>

#include "base/blocked_signals.hpp"
#include "base/error.hpp"
#include "base/format.hpp"
#include "base/log.hpp"

namespace dslaunch::file_io {
namespace {

// A device that is busy for longer than some ten seconds is broken.
constexpr int kMaxRetries = 10'000;

void pause_before_retry(int num_retries) {
  if (num_retries > 16) std::this_thread::sleep_for(std::chrono::milliseconds(1));
}

}  // namespace

// One thread's part: moves pieces through one queue.
class FileEngine::Worker {
 public:
  Worker(FileEngine& engine, std::unique_ptr<BlockQueue> queue)
      : engine_(engine), queue_(std::move(queue)), slots_(static_cast<size_t>(queue_->depth())) {
    for (size_t i = 0; i < slots_.size(); ++i) free_.push_back(i);
  }

  // Until the engine stops. A queue that no longer works ends every request.
  void run() {
    try {
      work();
    } catch (const std::exception& error) {
      queue_.reset();  // nothing of it is in flight after this
      engine_.break_down(described(error));
    }
  }

 private:
  void work() {
    std::vector<Piece> taken;
    while (engine_.take(taken, free_.size(), free_.size() < slots_.size())) {
      for (auto& piece : taken) {
        const size_t slot = free_.back();
        free_.pop_back();
        slots_[slot] = piece;
        push(slot);
      }
      taken.clear();
      if (free_.size() < slots_.size()) pop();
    }
  }

  void push(size_t slot) {
    Piece& piece = slots_[slot];
    piece.file->open_block(piece.file_index, piece.block);
    queue_->push(piece.block, slot);
  }

  void pop() {
    const BlockEnd end = queue_->pop();
    Piece& piece = slots_[end.tag];
    if (end.result > 0) {
      advance(piece, end.result);
      if (piece.block.bytes > 0) return push(end.tag);
      return finish(end.tag, std::nullopt);
    }
    const auto error = static_cast<int>(-end.result);
    if (can_continue(piece, error)) return push(end.tag);
    finish(end.tag, described(failure(piece, error)));
  }

  static void advance(Piece& piece, int64_t bytes) {
    piece.block.data += bytes;
    piece.block.offset += bytes;
    piece.block.bytes -= bytes;
    piece.num_retries = 0;
  }

  static bool can_continue(Piece& piece, int error) {
    if ((error == EINTR || error == EAGAIN) && ++piece.num_retries < kMaxRetries) {
      if (error == EAGAIN) pause_before_retry(piece.num_retries);
      return true;
    }
    if (error != EINVAL || !piece.block.is_direct) return false;
    piece.file->give_up_direct(piece.file_index);
    return true;
  }

  // 0: nothing was moved.
  static SystemError failure(const Piece& piece, int error) {
    const Block& block = piece.block;
    const std::string object = fmt::format("{} bytes at offset {} of the unnamed file in '{}'", block.bytes,
                                           block.offset, piece.file->directory(piece.file_index));
    if (error == 0 && !block.is_write) return {"read: unexpected end of file:", object, EIO};
    return {block.is_write ? "write" : "read", object, error == 0 ? EIO : error};
  }

  void finish(size_t slot, const std::optional<DescribedError>& failure) {
    free_.push_back(slot);
    engine_.finish_block(slots_[slot].ticket, failure);
  }

  FileEngine& engine_;
  std::unique_ptr<BlockQueue> queue_;
  std::vector<Piece> slots_;  // by tag
  std::vector<size_t> free_;
};

FileEngine::FileEngine(EngineOptions options) : options_(std::move(options)) {
  DSL_CHECK(options_.block_size > 0 && options_.block_size % kDirectAlignment == 0, "block_size is not aligned");
  DSL_CHECK(options_.queue_depth > 0 && options_.num_threads > 0, "an engine needs a queue and a thread");
  if (!options_.note) options_.note = [](const std::string& line) { log::warning("{}", line); };
  const BlockedSignals blocked;
  for (auto& queue : make_queues()) {
    if (options_.wrap_queue) queue = options_.wrap_queue(std::move(queue));
    auto worker = std::make_shared<Worker>(*this, std::move(queue));
    try {
      threads_.emplace_back([worker] { worker->run(); });
    } catch (...) {
      stop();
      throw;
    }
  }
}

FileEngine::~FileEngine() {
  stop();
}

void FileEngine::stop() {
  {
    const std::lock_guard lock(mutex_);
    is_stopping_ = true;
    waiting_.clear();
  }
  waiting_changed_.notify_all();
  for (auto& thread : threads_) thread.join();
}

std::vector<std::unique_ptr<BlockQueue>> FileEngine::make_queues() {
  std::vector<std::unique_ptr<BlockQueue>> queues;
  const int num_blocking = std::min(options_.num_threads * options_.queue_depth, kMaxBlockingThreads);
  if (options_.backend != Backend::kThreads) {
    bool is_noted = false;
    const Note note_once = [&](const std::string& line) {
      if (!std::exchange(is_noted, true)) options_.note(line);
    };
    for (int i = 0; i < options_.num_threads; ++i) {
      auto queue = make_uring_queue(options_.queue_depth, options_.buffers, note_once);
      if (queue.ok()) {
        queues.push_back(*std::move(queue));
        continue;
      }
      if (options_.backend == Backend::kUring) {
        throw UserError(ExitCode::kUnavailable, "io_uring is not available: " + queue.error());
      }
      options_.note(
          fmt::format("io_uring is not available ({}): {} threads read and write files", queue.error(), num_blocking));
      queues.clear();
      break;
    }
  }
  uses_uring_ = !queues.empty();
  for (int i = 0; !uses_uring_ && i < num_blocking; ++i) queues.push_back(make_blocking_queue());
  return queues;
}

FileEngine::Ticket FileEngine::read(StripedFile& file, int64_t offset, std::span<std::byte> into) {
  return submit(file, offset, into, false);
}

FileEngine::Ticket FileEngine::write(StripedFile& file, int64_t offset, std::span<const std::byte> from) {
  // A block of a write is only read.
  return submit(file, offset, {const_cast<std::byte*>(from.data()), from.size()}, true);
}

FileEngine::Ticket FileEngine::submit(StripedFile& file, int64_t offset, std::span<std::byte> buffer, bool is_write) {
  const auto bytes = static_cast<int64_t>(buffer.size());
  DSL_CHECK(offset >= 0 && bytes <= file.bytes() - offset, "a request reaches beyond its file");
  std::vector<Piece> pieces;
  for (int64_t done = 0; done < bytes;) {
    const StripedFile::Place place = file.locate(offset + done);
    Piece& piece = pieces.emplace_back();
    piece.file = &file;
    piece.file_index = place.file;
    piece.block = {.is_write = is_write,
                   .data = buffer.data() + done,
                   .bytes = std::min({place.bytes, options_.block_size, bytes - done}),
                   .offset = place.offset};
    done += piece.block.bytes;
  }
  const std::lock_guard lock(mutex_);
  const Ticket ticket = next_ticket_++;
  Request& request = requests_[ticket];
  request.failure = broken_;
  if (broken_) return ticket;
  request.blocks_left = static_cast<int64_t>(pieces.size());
  for (auto& piece : pieces) {
    piece.ticket = ticket;
    waiting_.push_back(piece);
  }
  if (pieces.size() == 1) {
    waiting_changed_.notify_one();
  } else {
    waiting_changed_.notify_all();
  }
  return ticket;
}

bool FileEngine::take(std::vector<Piece>& pieces, size_t most, bool others_in_flight) {
  std::unique_lock lock(mutex_);
  if (!others_in_flight) {
    waiting_changed_.wait(lock, [&] { return is_stopping_ || !waiting_.empty(); });
    if (waiting_.empty()) return false;
  }
  for (; pieces.size() < most && !waiting_.empty(); waiting_.pop_front()) {
    Piece& next = waiting_.front();
    Request& request = requests_.at(next.ticket);
    if (!request.failure) {
      pieces.push_back(next);
    } else if (--request.blocks_left == 0) {  // the rest of a request that failed
      request_done_.notify_all();
    }
  }
  return true;
}

void FileEngine::finish_block(Ticket ticket, const std::optional<DescribedError>& failure) {
  const std::lock_guard lock(mutex_);
  const auto found = requests_.find(ticket);
  if (found == requests_.end() || found->second.blocks_left == 0) return;  // another thread's queue broke down
  Request& request = found->second;
  if (failure && !request.failure) request.failure = failure;
  if (--request.blocks_left == 0) request_done_.notify_all();
}

void FileEngine::break_down(const DescribedError& failure) {
  const std::lock_guard lock(mutex_);
  broken_ = failure;
  waiting_.clear();
  for (auto& [ticket, request] : requests_) {
    if (request.blocks_left == 0) continue;
    request.blocks_left = 0;
    if (!request.failure) request.failure = failure;
  }
  request_done_.notify_all();
}

void FileEngine::wait(Ticket ticket) {
  std::unique_lock lock(mutex_);
  const auto found = requests_.find(ticket);
  DSL_CHECK(found != requests_.end(), "a ticket is waited for once");
  Request& request = found->second;  // stays where it is while others come and go
  request_done_.wait(lock, [&] { return request.blocks_left == 0; });
  const auto failure = request.failure;
  requests_.erase(ticket);
  if (failure) throw Error(failure->code, failure->text);
}

}  // namespace dslaunch::file_io
