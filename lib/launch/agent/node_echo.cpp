#include "launch/agent/node_echo.hpp"

#include <algorithm>
#include <csignal>

#include "base/printable.hpp"

namespace dslaunch::launch {

// With more than this waiting for this node's own reader, the ranks wait too.
constexpr size_t kMaxUnreadBytes = 4U << 20;

void NodeEcho::write_lines(std::string_view lines) {
  Terminal& reader = reader_of(Stream::kErr);
  if (escapes_.is_open() && reader.is_terminal()) reader.write(EscapeState::kEnd);
  escapes_.end();
  reader.write(printable_lines(lines));
}

bool NodeEcho::has_room() const {
  return std::max(out_.num_pending(), err_.num_pending()) < kMaxUnreadBytes && files_.has_room();
}

void NodeEcho::add_to(PollSet& polls) {
  if (!files_.has_room()) files_.wake_when_idle();
  polls.add(files_.fd(), POLLIN);
  for (Terminal* terminal : {&out_, &err_}) {
    polls.add(terminal->num_pending() > 0 ? terminal->fd() : -1, POLLOUT);
  }
}

void NodeEcho::poll_once() {
  files_.take_errors();  // a terminal's files have none: see has_lost()
  out_.flush();
  err_.flush();
}

void NodeEcho::drain(SignalInbox& signals, Deadline deadline) {
  const Deadline files_deadline = Deadline::after(FileThread::kTimeout);
  auto awaits_files = [&] { return !files_.idle() && !files_deadline.passed(); };
  for (poll_once(); !deadline.passed(); poll_once()) {
    const bool waits = awaits_files();  // asked once: the thread may finish at any moment
    if (!waits && out_.num_pending() + err_.num_pending() == 0) return;
    if (waits) files_.wake_when_idle();
    PollSet polls;
    size_t signal = polls.add(signals.fd(), POLLIN);
    add_to(polls);
    polls.wait(waits ? std::min(files_deadline, deadline) : deadline);
    if (polls.ready(signal) && signals.take().value_or(SIGCHLD) != SIGCHLD) return;
  }
}

}  // namespace dslaunch::launch
