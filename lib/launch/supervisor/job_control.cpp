#include "launch/supervisor/job_control.hpp"

#include <algorithm>

namespace dslaunch::launch {

void JobControl::handle_event(JobEvent event) {
  carry_out(attempt_.lifecycle.handle_event(event, Deadline::Clock::now()));
}

void JobControl::carry_out(const JobOrder& order) {
  if (!order.message.empty()) attempt_.output.info(order.message);
  if (order.begins_end) attempt_.output.set_timeout(attempt_.reader_timeout());
  record_times(order);
  attempt_.options.live->on_state(attempt_.lifecycle.state());
  switch (order.action) {
    case JobAction::kNone:
    case JobAction::kAwaitRootCause:
      break;
    case JobAction::kStartRanks:
      send_to_all(StartRanks{attempt_.nodes[0].master_port});
      break;
    case JobAction::kStop:
    case JobAction::kKill:
      stop_ranks(order.grace);
      break;
    case JobAction::kAbandon:
      abandon();
      break;
  }
}

// Records how long the ranks ran before the job's end began.
void JobControl::record_times(const JobOrder& order) {
  const auto now = Deadline::Clock::now();
  if (order.action == JobAction::kStartRanks) ranks_started_ = now;
  if (order.begins_end && ranks_started_) {
    attempt_.run_time = std::chrono::duration_cast<std::chrono::milliseconds>(now - *ranks_started_);
  }
}

void JobControl::end_if_all_over() {
  bool all = std::all_of(attempt_.nodes.begin(), attempt_.nodes.end(), [](const auto& node) { return node.over(); });
  if (all) handle_event(JobEvent::kAllDone);
}

void JobControl::send_to_all(const MessageToAgent& message) {
  for (auto& node : attempt_.nodes) node.send(message);
}

void JobControl::stop_ranks(std::chrono::milliseconds grace) {
  send_to_all(StopRanks{grace});
  // A link that is still being opened has no ranks behind it.
  for (auto& node : attempt_.nodes) {
    if (!node.has_reached(NodeSession::Stage::kGreeted) && !node.closed()) {
      node.link().kill();
      node.close();
    }
  }
  end_if_all_over();
}

void JobControl::abandon() {
  attempt_.output.print_line("the agents do not answer: ending them and all processes with the job's id");
  for (auto& node : attempt_.nodes) {
    if (!node.over()) node.link().kill();
  }
}

}  // namespace dslaunch::launch
