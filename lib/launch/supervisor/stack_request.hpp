// One request for the stacks of ranks, from a client of the job's socket, until all agents have answered or its time is
// over. Pure except for the deadline's clock.
#pragma once
#include <chrono>
#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "base/deadline.hpp"
#include "launch/channel/message.hpp"
#include "launch/jobs/job_requests.hpp"
#include "launch/plan/launch_plan.hpp"
#include "launch/supervisor/job_outcome.hpp"

namespace dslaunch::launch {

class StackRequest {
 public:
  StackRequest(uint64_t client, int64_t number) : client_(client), number_(number) {}

  uint64_t client() const { return client_; }
  int64_t number() const { return number_; }
  Deadline deadline() const { return deadline_; }

  // An agent has been asked for this rank.
  void expect(int rank) { awaited_.insert(rank); }
  // This rank's stack cannot be had; `reason` ends the line "rank 3: ...".
  void miss(int rank, std::string reason) { missing_[rank] = std::move(reason); }
  // The answer of the agent that runs `ranks`.
  void take(const std::vector<PlannedRank>& ranks, const RankStacks& stacks);
  bool is_complete() const { return awaited_.empty(); }

  // The answer document; for ranks still awaited it reports that their agent does not answer.
  std::string document(const std::vector<RankRecord>& records) const;

 private:
  const uint64_t client_;
  const int64_t number_;
  const Deadline deadline_ = Deadline::after(kStacksTimeout);
  std::set<int> awaited_;
  std::map<int, std::string> missing_;
  std::vector<RankStack> stacks_;
};

}  // namespace dslaunch::launch
