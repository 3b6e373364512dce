#include "launch/supervisor/shutdown.hpp"

#include <poll.h>

#include <algorithm>

#include "base/format.hpp"
#include "launch/event_loop/poll_set.hpp"
#include "launch/nodes/cleanup_nodes.hpp"
#include "launch/supervisor/node_join.hpp"

namespace dslaunch::launch {
namespace {

using namespace std::chrono_literals;

// For the links to close, of agents that have ended, or never will.
constexpr auto kLinkTimeout = 3000ms;
// For files that are not waited for any longer: enough for files that are not stalled.
constexpr auto kFileMoment = 500ms;
// After a requested stop, and after an urgent one.
constexpr auto kStopRequestedFileTimeout = 10000ms, kHurriedFileTimeout = 1000ms;
// Before a wait for files is reported.
constexpr auto kFileReportInterval = 1500ms;

}  // namespace

void Shutdown::close_links() {
  const std::vector<PlannedNode> not_cleaned = close_started_links();
  const NodeCleanup cleanup = cleanup_nodes(not_cleaned, attempt_.plan, attempt_.options.program);
  for (const auto& process : cleanup.stuck_here) record_stuck_here(not_cleaned, process);
  for (const auto& host : cleanup.unreached) {
    attempt_.output.print_line(
        fmt::format("cannot reach {} to clean up there; its agent ends the ranks itself after {} s without a "
                    "heartbeat from the launcher",
                    host, attempt_.plan.reach.silence_limit / 1s));
  }
}

// Returns the nodes on which processes may be left: ranks die with their agent, but an agent that was killed could not
// clean up after them.
std::vector<PlannedNode> Shutdown::close_started_links() {
  for (auto& node : attempt_.nodes) {
    if (node.plan().reach != Reach::kNodeJoin) node.close();
  }
  const Deadline deadline = Deadline::after(kLinkTimeout);  // one for all
  std::vector<PlannedNode> not_cleaned;
  for (auto& node : attempt_.nodes) {
    if (node.plan().reach == Reach::kNodeJoin) continue;
    if (!node.link().wait(deadline)) node.link().kill();
    if (!node.has_reached(NodeSession::Stage::kDone) && attempt_.described) not_cleaned.push_back(node.plan());
  }
  return not_cleaned;
}

// For this machine's nodes, whose agents could not report it.
void Shutdown::record_stuck_here(const std::vector<PlannedNode>& nodes, const spawn::StuckProcess& process) {
  const PlannedNode* here = nullptr;
  for (const auto& node : nodes) {
    if (node.reach != Reach::kPipe) continue;
    here = &node;
    for (const auto& rank : node.ranks) {
      const RankRecord& record = attempt_.records[static_cast<size_t>(rank.rank)];
      if (record.pid == process.pid) return attempt_.record_stuck(node, rank.rank, process);
    }
  }
  if (here != nullptr) attempt_.record_stuck(*here, -1, process);
}

// The supervisor cannot continue. The agents see its end by that of their channels, and clean up if given the time.
void Shutdown::shut_down_after_error(const JobEnded& job_ended) noexcept {
  try {
    dismiss_nodes(attempt_.options.links, job_ended);  // those that have no session yet
    dismiss(job_ended);
    close_links();
  } catch (const std::exception&) {
    // The original error is reported; the links end with this process.
  }
}

void Shutdown::dismiss(const JobEnded& job_ended) {
  Deadline deadline = Deadline::after(kLinkTimeout);
  for (auto& node : attempt_.nodes) {
    if (node.plan().reach != Reach::kNodeJoin || node.closed()) continue;
    node.receive();  // closing a socket with unread input discards what was sent last
    node.send(job_ended);
    while (node.num_unsent() > 0 && !deadline.passed()) {
      PollSet polls;
      polls.add(node.output(), POLLOUT);
      polls.wait(deadline);
      node.flush();
    }
    node.close();
  }
}

StopReason Shutdown::late_reason() {
  while (auto signal = attempt_.signals.take()) attempt_.lifecycle.take_late_signal(*signal);
  return attempt_.lifecycle.late_reason();
}

std::chrono::milliseconds Shutdown::file_timeout() const {
  if (attempt_.lifecycle.is_hurried()) return kHurriedFileTimeout;
  return attempt_.lifecycle.stop_requested() ? kStopRequestedFileTimeout
                                             : std::chrono::milliseconds(FileThread::kTimeout);
}

// A slow reader gets everything, and so do files that do not stall for too long; one more Ctrl-C discards the rest.
// After a requested stop a reader that accepts nothing delays the end by Terminal::kStopRequestedTimeout, once.
void Shutdown::drain_output() {
  JobOutput& output = attempt_.output;
  JobLifecycle& lifecycle = attempt_.lifecycle;
  FileThread& files = attempt_.options.live->files();
  if (files_due_.is_never()) files_due_ = Deadline::after(file_timeout());
  output.set_timeout(attempt_.reader_timeout());
  Deadline news = Deadline::after(kFileReportInterval);
  while (!lifecycle.discards_output()) {
    const bool awaits_files = !files.idle() && !files_due_.passed();  // asked once: the thread may finish at any moment
    attempt_.report_errors();                                         // all of them, once nothing waits
    const bool awaits_readers = output.num_pending() > 0 && !readers_are_over_;
    if (!awaits_files && !awaits_readers) break;
    if (awaits_files) files.wake_when_idle();
    const bool stop_was_requested = lifecycle.stop_requested();
    const Deadline readers_due = stop_was_requested && awaits_readers ? output.readers_deadline() : Deadline::never();
    poll_output(awaits_readers, awaits_files ? std::min({files_due_, readers_due, news}) : readers_due);
    if (awaits_files && news.passed()) {
      report_pending_files();
      news = Deadline::never();
    }
    output.out().flush();
    output.err().flush();
    if (stop_was_requested && output.readers_deadline().passed()) {
      output.drop_slow_readers();
      readers_are_over_ = true;
    }
    if (auto signal = attempt_.signals.take()) lifecycle.take_late_signal(*signal);
  }
  if (lifecycle.discards_output()) files.wait(Deadline::after(kFileMoment));
}

void Shutdown::poll_output(bool awaits_readers, Deadline due) {
  PollSet polls;
  polls.add(attempt_.signals.fd(), POLLIN);
  polls.add(attempt_.options.live->files().fd(), POLLIN);
  for (Terminal* terminal : {&attempt_.output.out(), &attempt_.output.err()}) {
    polls.add(awaits_readers && terminal->num_pending() > 0 ? terminal->fd() : -1, POLLOUT);
  }
  polls.wait(due);
}

void Shutdown::report_pending_files() {
  attempt_.output.info(fmt::format("waiting up to {} s for the job's output files (Ctrl-C stops waiting)",
                                   std::chrono::ceil<std::chrono::seconds>(files_due_.left()) / 1s));
}

}  // namespace dslaunch::launch
