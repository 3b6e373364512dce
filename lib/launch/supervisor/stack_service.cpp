#include "launch/supervisor/stack_service.hpp"

#include <algorithm>

#include "base/format.hpp"

namespace dslaunch::launch {

void StackService::request(const JobSocket::PendingStacksRequest& asked) {
  if (request_) {
    attempt_.options.live->answer(asked.client, Refused{"another 'dslaunch stacks' of this job is running: try again"});
    return;
  }
  request_.emplace(asked.client, ++num_requests_);
  for (auto& node : attempt_.nodes) query_agent(node, asked.request);
}

void StackService::query_agent(NodeSession& node, const StacksRequest& request) {
  std::vector<int> running;
  for (const auto& planned : node.plan().ranks) {
    const bool is_wanted =
        request.ranks.empty() || std::count(request.ranks.begin(), request.ranks.end(), planned.rank) > 0;
    if (!is_wanted) continue;
    const RankRecord& record = attempt_.record_of(node, planned.rank);
    if (record.cause) {
      request_->miss(planned.rank, fmt::format("it has ended: {}", spawn::describe(*record.cause)));
    } else if (node.over()) {
      request_->miss(planned.rank, fmt::format("the agent on {} has exited", node.host()));
    } else if (record.pid <= 0) {
      request_->miss(planned.rank, "it has not started yet");
    } else {
      running.push_back(planned.rank);
      request_->expect(planned.rank);
    }
  }
  if (!running.empty()) node.send(StacksWanted{num_requests_, running});
}

void StackService::take(const NodeSession& node, const RankStacks& stacks) {
  for (const auto& stack : stacks.stacks) attempt_.record_of(node, stack.rank);
  if (request_ && request_->number() == stacks.request) request_->take(node.plan().ranks, stacks);
}

void StackService::answer_when_due() {
  if (!request_ || (!request_->is_complete() && !request_->deadline().passed())) return;
  attempt_.options.live->answer(request_->client(), StacksAnswer{request_->document(attempt_.records)});
  request_.reset();
}

}  // namespace dslaunch::launch
