// The supervisor's part in `dslaunch stacks`: between the client of the job's socket and the agents. One request at a
// time. One thread.
#pragma once
#include <cstdint>
#include <optional>

#include "base/deadline.hpp"
#include "launch/channel/message.hpp"
#include "launch/jobs/job_socket.hpp"
#include "launch/supervisor/attempt.hpp"
#include "launch/supervisor/stack_request.hpp"

namespace dslaunch::launch {

class StackService {
 public:
  explicit StackService(Attempt& attempt) : attempt_(attempt) {}

  // Asks the agents, or refuses the client while another request is at work.
  void request(const JobSocket::PendingStacksRequest& asked);
  void take(const NodeSession& node, const RankStacks& stacks);
  // Answers the client once all agents have answered, or their time is over.
  void answer_when_due();
  // When to call answer_when_due() again.
  Deadline next_due() const { return request_ ? request_->deadline() : Deadline::never(); }

 private:
  void query_agent(NodeSession& node, const StacksRequest& request);

  Attempt& attempt_;
  std::optional<StackRequest> request_;  // not answered yet
  int64_t num_requests_ = 0;
};

}  // namespace dslaunch::launch
