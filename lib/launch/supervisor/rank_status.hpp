// What the ranks of a job are doing, from the answers of all agents to one question, as the document of `dslaunch top`
// (docs/jobs.md) and as a line of launcher.jsonl. Pure.
#pragma once
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "launch/channel/message.hpp"
#include "launch/supervisor/job_outcome.hpp"
#include "launch/supervisor/launcher_events.hpp"

namespace dslaunch::launch {

class RankStatusTable {
 public:
  // `ranks`: those of the answering agent; a sample of another rank is ignored.
  void take(const std::string& host, const std::vector<int>& ranks, NodeStatus status);

  // By rank.
  std::vector<RankSampleLine> samples(size_t world_size) const;
  // `activity`: of the ranks of an `exec`, by rank; empty: of a `run`, whose ranks report themselves.
  std::string document(const std::vector<RankRecord>& records, const std::vector<RankActivity>& activity,
                       const std::string& job_id, const std::string& job_state) const;

 private:
  struct Host {
    int load_percent = 0, num_cores = 0;
    int64_t memory_bytes = 0, available_bytes = 0;
  };
  std::map<int, RankSample> samples_;  // by rank
  std::vector<std::pair<std::string, Host>> hosts_;
};

}  // namespace dslaunch::launch
