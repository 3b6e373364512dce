// The supervisor when nothing runs any longer: closes the links to the agents, makes the report, and sends the last
// messages to nodes and readers.
#include <poll.h>

#include <algorithm>

#include "base/format.hpp"
#include "launch/event_loop/poll_set.hpp"
#include "launch/nodes/cleanup_nodes.hpp"
#include "launch/supervisor/failure_summary.hpp"
#include "launch/supervisor/node_join.hpp"
#include "launch/supervisor/supervisor.hpp"
#include "spawn/failure_table.hpp"

namespace dslaunch::launch {
namespace {

using namespace std::chrono_literals;

// For the links to close, of agents that have ended, or never will.
constexpr auto kLinkTimeout = 3000ms;
// For files that are not waited for any longer: enough for files that are not stalled.
constexpr auto kFileMoment = 500ms;
// After a requested stop, and after an urgent one.
constexpr auto kAskedFileTimeout = 10000ms, kHurriedFileTimeout = 1000ms;
// Before a wait for files is reported.
constexpr auto kFileNewsTime = 1500ms;

}  // namespace

void Supervisor::await_links() {
  for (auto& node : nodes_) {
    if (node.plan().reach != Reach::kDialIn) node.close();
  }
  const Deadline patience = Deadline::after(kLinkTimeout);  // one for all
  std::vector<PlannedNode> unswept;
  for (auto& node : nodes_) {
    if (node.plan().reach == Reach::kDialIn) continue;
    if (!node.link().wait(patience)) node.link().kill();
    // Ranks die with their agent; an agent that was killed could not clean up after them.
    if (!node.has_come_to(NodeSession::Stage::kDone) && described_) unswept.push_back(node.plan());
  }
  const SweptNodes swept = cleanup_nodes(unswept, plan_, options_.program);
  for (const auto& process : swept.stuck_here) note_stuck_here(unswept, process);
  for (const auto& host : swept.unreached) {
    output_.say(
        fmt::format("cannot reach {} to clean up there; its agent ends the ranks itself after {} s without a "
                    "heartbeat from the launcher",
                    host, plan_.reach.silence_limit / 1s));
  }
}

// For this machine's nodes, whose agents could not report it.
void Supervisor::note_stuck_here(const std::vector<PlannedNode>& nodes, const spawn::StuckProcess& process) {
  const PlannedNode* here = nullptr;
  for (const auto& node : nodes) {
    if (node.reach != Reach::kPipe) continue;
    here = &node;
    for (const auto& rank : node.ranks) {
      if (records_[static_cast<size_t>(rank.rank)].pid == process.pid) return note_stuck(node, rank.rank, process);
    }
  }
  if (here != nullptr) note_stuck(*here, -1, process);
}

// The supervisor cannot continue. The agents see its end by that of their channels, and clean up if given the time.
void Supervisor::leave_nothing_behind(const JobEnded& last_word) noexcept {
  try {
    dismiss_nodes(options_.links, last_word);  // those that have no session yet
    dismiss(last_word);
    await_links();
  } catch (const std::exception&) {
    // The original error is reported; the links end with this process.
  }
}

JobReport Supervisor::report() {
  JobReport report;
  report.outcome = decide_outcome(records_, plan_.kind, lifecycle_.reason(), lifecycle_.agent_error());
  report.reason = lifecycle_.reason();
  report.told_to_end = lifecycle_.agent_error() == to_int(ExitCode::kRunAgain);
  report.records = records_;
  report.lived = lived_;
  report.stuck = stuck_;
  report.host_failures = failures_;
  if (report.outcome.exit_code == 0) return report;
  // What happened to a host explains what happened to its ranks, not the other way round.
  bool hosts_fault = lifecycle_.agent_error() != 0 && lifecycle_.reason() == StopReason::kNone;
  if (hosts_fault) report.outcome.first_failure.reset();
  report.story = format_summary(plan_, report);
  if (!hosts_fault) return report;
  if (!failures_.empty()) report.story += tell_failures();
  if (agent_failure_) {
    report.ended_by.push_back(*agent_failure_);
    report.story += tell_agent_failure();
  }
  report.ended_by.insert(report.ended_by.end(), failures_.begin(), failures_.end());
  return report;
}

std::string Supervisor::tell_failures() const {
  return fmt::format("dslaunch: {} of {} host{} failed:\n{}", failures_.size(), nodes_.size(),
                     nodes_.size() == 1 ? "" : "s", spawn::failure_table(failures_));
}

// It was reported when it happened; if ranks ran, later messages have followed it, so it is repeated.
std::string Supervisor::tell_agent_failure() const {
  const bool ran = std::any_of(records_.begin(), records_.end(), [](const auto& record) { return record.pid > 0; });
  const auto& [host, failure] = *agent_failure_;
  return ran ? fmt::format("dslaunch: the job ended: {}: {}\n", host, failure.text) : "";
}

void Supervisor::dismiss(const JobEnded& last_word) {
  Deadline patience = Deadline::after(kLinkTimeout);
  for (auto& node : nodes_) {
    if (node.plan().reach != Reach::kDialIn || node.closed()) continue;
    node.receive();  // closing a socket with unread input discards what was sent last
    node.send(last_word);
    while (node.num_unsent() > 0 && !patience.passed()) {
      PollSet polls;
      polls.add(node.output(), POLLOUT);
      polls.wait(patience);
      node.flush();
    }
    node.close();
  }
}

StopReason Supervisor::late_reason() {
  while (auto signal = signals_.take()) lifecycle_.take_late_signal(*signal);
  return lifecycle_.late_reason();
}

std::chrono::milliseconds Supervisor::files_patience() const {
  if (lifecycle_.hurried()) return kHurriedFileTimeout;
  return lifecycle_.asked_for() ? kAskedFileTimeout : std::chrono::milliseconds(FileThread::kTimeout);
}

// A slow reader gets everything, and so do files that do not stall for too long; one more Ctrl-C discards the rest.
// After a requested stop a reader that accepts nothing delays the end by Terminal::kAskedTimeout, once.
void Supervisor::drain_output() {
  FileThread& files = options_.live->files();
  if (files_due_.is_never()) files_due_ = Deadline::after(files_patience());
  auto awaits_files = [&] { return !files.idle() && !files_due_.passed(); };
  output_.set_patience(reader_patience());
  Deadline news = Deadline::after(kFileNewsTime);
  while (!lifecycle_.discards_output()) {
    const bool waits = awaits_files();  // asked once: the thread may finish at any moment
    report_errors();                    // all of them, once nothing waits
    const bool awaits_readers = output_.num_pending() > 0 && !readers_are_over_;
    if (!waits && !awaits_readers) break;
    if (waits) files.wake_when_idle();
    PollSet polls;
    polls.add(signals_.fd(), POLLIN);
    polls.add(files.fd(), POLLIN);
    for (Terminal* terminal : {&output_.out(), &output_.err()}) {
      polls.add(awaits_readers && terminal->num_pending() > 0 ? terminal->fd() : -1, POLLOUT);
    }
    const bool was_asked_for = lifecycle_.asked_for();
    const Deadline readers_due = was_asked_for && awaits_readers ? output_.readers_patience() : Deadline::never();
    polls.wait(waits ? std::min({files_due_, readers_due, news}) : readers_due);
    if (waits && news.passed()) {
      output_.mention(fmt::format("waiting up to {} s for the job's output files (Ctrl-C stops waiting)",
                                  std::chrono::ceil<std::chrono::seconds>(files_due_.left()) / 1s));
      news = Deadline::never();
    }
    output_.out().flush();
    output_.err().flush();
    if (was_asked_for && output_.readers_patience().passed()) {
      output_.drop_slow_readers();
      readers_are_over_ = true;
    }
    if (auto signal = signals_.take()) lifecycle_.take_late_signal(*signal);
  }
  if (lifecycle_.discards_output()) files.wait(Deadline::after(kFileMoment));
}

}  // namespace dslaunch::launch
