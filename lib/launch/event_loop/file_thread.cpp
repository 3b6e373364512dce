#include "launch/event_loop/file_thread.hpp"

#include <sys/eventfd.h>

#include <cerrno>
#include <condition_variable>
#include <deque>
#include <mutex>
#include <utility>

#include "base/error.hpp"
#include "base/unique_fd.hpp"
#include "base/wait_until.hpp"
#include "spawn/link_thread.hpp"

namespace dslaunch::launch {
namespace {

// The memory of a piece of work besides its bytes.
constexpr size_t kPieceBytes = 128;

struct Piece {
  size_t num_bytes;
  FileThread::Work work;
};

}  // namespace

struct FileThread::Shared {
  UniqueFd event{::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)};  // readable: the owner's loop has to wake up

  std::mutex mutex;
  std::condition_variable asked, done;
  std::deque<Piece> pieces;  // the first one is in progress
  size_t num_bytes = 0;
  std::vector<std::string> errors;
  bool wake_when_idle = false;
  bool over = false;

  void wake() const { ::eventfd_write(event.get(), 1); }
};

FileThread::FileThread() : shared_(std::make_shared<Shared>()) {
  if (!shared_->event.valid()) throw SystemError("eventfd", "for the thread of files", errno);
  spawn::start_link_thread([shared = shared_] { work_through(*shared); });
}

FileThread::~FileThread() {
  std::lock_guard lock(shared_->mutex);
  shared_->over = true;
  shared_->asked.notify_one();
}

void FileThread::work_through(Shared& shared) {
  std::unique_lock lock(shared.mutex);
  for (;;) {
    shared.asked.wait(lock, [&] { return shared.over || !shared.pieces.empty(); });
    if (shared.over) return;
    Piece& piece = shared.pieces.front();  // stays valid: new pieces are added at the back
    lock.unlock();
    std::string error = piece.work();
    piece.work = nullptr;  // this may close a file, which may stall too
    lock.lock();
    shared.num_bytes -= piece.num_bytes;
    shared.pieces.pop_front();
    if (!error.empty()) shared.errors.push_back(std::move(error));
    const bool idle = shared.pieces.empty();
    if (idle) shared.done.notify_all();
    if (!shared.errors.empty() || (idle && std::exchange(shared.wake_when_idle, false))) shared.wake();
  }
}

void FileThread::submit(size_t num_bytes, Work work) {
  num_bytes += kPieceBytes;
  std::lock_guard lock(shared_->mutex);
  shared_->num_bytes += num_bytes;
  shared_->pieces.push_back({num_bytes, std::move(work)});
  shared_->asked.notify_one();
}

bool FileThread::idle() const {
  std::lock_guard lock(shared_->mutex);
  return shared_->pieces.empty();
}

size_t FileThread::num_pending_bytes() const {
  std::lock_guard lock(shared_->mutex);
  return shared_->num_bytes;
}

std::vector<std::string> FileThread::take_errors() {
  eventfd_t ignored;
  ::eventfd_read(shared_->event.get(), &ignored);
  std::lock_guard lock(shared_->mutex);
  return std::exchange(shared_->errors, {});
}

bool FileThread::wait(Deadline deadline) {
  std::unique_lock lock(shared_->mutex);
  return wait_until(shared_->done, lock, deadline, [&] { return shared_->pieces.empty(); });
}

int FileThread::fd() const {
  return shared_->event.get();
}

void FileThread::wake_when_idle() {
  std::lock_guard lock(shared_->mutex);
  if (shared_->pieces.empty()) return shared_->wake();
  shared_->wake_when_idle = true;
}

}  // namespace dslaunch::launch
