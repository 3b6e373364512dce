#include "launch/supervisor/node_monitor.hpp"

#include <algorithm>

#include "base/format.hpp"
#include "base/printable.hpp"
#include "ports/process_info.hpp"

namespace dslaunch::launch {
namespace {

using namespace std::chrono_literals;
using Stage = NodeSession::Stage;

// A hint for the user when sshd started a login shell but the agent never greeted.
std::string start_file_hint(const NodeSession& node) {
  if (node.has_reached(Stage::kGreeted) || node.plan().reach != Reach::kSsh) return {};
  return fmt::format("; a shell start-up file on that host (such as ~/.bashrc) may exit or block: try ssh {} true",
                     node.host());
}

// The transport connected, then the peer closed it without an error.
spawn::LinkFailure unreported_failure(const NodeSession& node) {
  std::string noise = node.noise();
  for (char& c : noise) c = c == '\n' || c == '\r' || c == '\t' ? ' ' : c;
  if (noise.empty()) {
    if (!node.has_reached(Stage::kGreeted)) {
      return {ExitCode::kUnavailable, "connection", "its shell exited without starting the agent", true};
    }
    return {ExitCode::kUnavailable, "connection", "lost connection to the agent while its ranks were running"};
  }
  return {ExitCode::kUnavailable, "start", "unexpected output instead of the agent's greeting: " + printable(noise)};
}

// What this machine can see of an agent that has been silent for too long.
std::string describe_silence(const NodeSession& node) {
  const auto seconds = node.heartbeats().silence() / 1s;
  if (node.plan().reach != Reach::kPipe) {
    return fmt::format("no heartbeat for {} s: the machine or the network is down", seconds);
  }
  const auto agent = ports::read_process_stat(static_cast<pid_t>(node.hello.pid));
  if (!agent) return fmt::format("its agent (process {}) has exited, last heartbeat {} s ago", node.hello.pid, seconds);
  const char* state = agent->state == 'T'   ? "it is stopped, e.g. by SIGSTOP"
                      : agent->state == 't' ? "it is stopped by a debugger"
                      : agent->state == 'D' ? "it waits for a disk or a driver"
                                            : "the machine may be overloaded";
  return fmt::format("no heartbeat from its agent (process {}) for {} s: {}", node.hello.pid, seconds, state);
}

// The failure of a link that has ended.
spawn::LinkFailure failure_of(NodeSession& node) {
  auto failure = node.link().failure().value_or(unreported_failure(node));
  if (failure.ended_there) failure.text += start_file_hint(node);
  return failure;
}

}  // namespace

void NodeMonitor::closed(NodeSession& node) {
  if (node.closed()) return;
  node.close();
  if (!node.has_reached(Stage::kDone)) on_agent_lost(node, failure_of(node));
  control_.end_if_all_over();
}

void NodeMonitor::give_up(NodeSession& node, const spawn::LinkFailure& why) {
  if (node.closed()) return;
  node.link().kill();
  node.close();
  on_agent_lost(node, why);
  control_.end_if_all_over();
}

void NodeMonitor::failed(NodeSession& node, const AgentFailed& failed) {
  attempt_.print_from(node, failed.message);
  const int error_before = attempt_.lifecycle.agent_error();
  const JobOrder order = attempt_.lifecycle.agent_failed(&node, failed.exit_code, Deadline::Clock::now());
  if (order.begins_end || attempt_.lifecycle.agent_error() != error_before) {
    attempt_.agent_failure = {node.host(), {static_cast<ExitCode>(failed.exit_code), "agent", failed.message}};
  }
  control_.carry_out(order);
}

void NodeMonitor::on_agent_lost(NodeSession& node, const spawn::LinkFailure& failure) {
  attempt_.host_failures.emplace_back(node.host(), failure);
  attempt_.lifecycle.record_agent_error(to_int(failure.code));
  if (!attempt_.described) return start_up_.check();
  attempt_.output.print_line(fmt::format("lost {}: {}", node.host(), failure.text));
  control_.handle_event(JobEvent::kAgentLost);
}

void NodeMonitor::check_deadlines() {
  const bool unprepared = start_up_.take_preparation_overdue();
  for (auto& node : attempt_.nodes) {
    if (node.over()) continue;
    if (const std::string why = overdue_text(node, unprepared); !why.empty()) {
      give_up(node, {ExitCode::kUnavailable, "connection", why});
    }
  }
}

// Why the supervisor gives the node up now; empty: it does not.
std::string NodeMonitor::overdue_text(NodeSession& node, bool unprepared) const {
  if (node.greeting_overdue()) {
    return fmt::format("its agent did not greet within {} s of the start of the connection (--connect_timeout){}",
                       static_cast<double>(attempt_.plan.reach.greeting_timeout.count()) / 1000, start_file_hint(node));
  }
  if (unprepared && !node.has_reached(Stage::kReady)) {
    return fmt::format(
        "its agent was not ready within {} s: it checks the working directory, the worker, the model, the GPUs and "
        "the names of the other hosts, and one of these does not respond there",
        attempt_.options.preparation_time / 1s);
  }
  return node.lost() ? describe_silence(node) : std::string();
}

Deadline NodeMonitor::next_due() const {
  Deadline next = start_up_.preparation_due();
  for (const auto& node : attempt_.nodes) {
    if (node.over()) continue;
    next = std::min(next, node.heartbeats().next());
    if (!node.has_reached(Stage::kGreeted)) next = std::min(next, node.greeting_due);
  }
  return next;
}

}  // namespace dslaunch::launch
