// The supervisor's part in `dslaunch stacks`: between the client of the job's socket and the agents.
#include <algorithm>

#include "base/format.hpp"
#include "launch/supervisor/supervisor.hpp"

namespace dslaunch::launch {

void Supervisor::ask_for_stacks(const JobSocket::StacksAsked& asked) {
  if (stack_request_) {
    options_.live->answer(asked.client, Refused{"another 'dslaunch stacks' of this job is running: try again"});
    return;
  }
  stack_request_.emplace(asked.client, ++num_stack_requests_);
  const auto is_wanted = [&](int rank) {
    const auto& ranks = asked.ask.ranks;
    return ranks.empty() || std::find(ranks.begin(), ranks.end(), rank) != ranks.end();
  };
  for (auto& node : nodes_) {
    std::vector<int> running;
    for (const auto& planned : node.plan().ranks) {
      if (!is_wanted(planned.rank)) continue;
      const RankRecord& record = record_of(node, planned.rank);
      if (record.cause) {
        stack_request_->miss(planned.rank, fmt::format("it has ended: {}", spawn::describe(*record.cause)));
      } else if (node.over()) {
        stack_request_->miss(planned.rank, fmt::format("the agent on {} has exited", node.host()));
      } else if (record.pid <= 0) {
        stack_request_->miss(planned.rank, "it has not started yet");
      } else {
        running.push_back(planned.rank);
        stack_request_->expect(planned.rank);
      }
    }
    if (!running.empty()) node.send(StacksWanted{num_stack_requests_, running});
  }
}

void Supervisor::take_stacks(const NodeSession& node, const RankStacks& stacks) {
  for (const auto& stack : stacks.stacks) record_of(node, stack.rank);
  if (stack_request_ && stack_request_->number() == stacks.request) stack_request_->take(node.plan().ranks, stacks);
}

void Supervisor::answer_stacks_when_due() {
  if (!stack_request_ || (!stack_request_->is_complete() && !stack_request_->deadline().passed())) return;
  options_.live->answer(stack_request_->client(), StacksAnswer{stack_request_->document(records_)});
  stack_request_.reset();
}

}  // namespace dslaunch::launch
