// Decides whether the job of a process is still supervised: by the supervisor recorded in job.json, or, if that cannot
// be decided from here (no record, another host, another pid namespace), by the agent that the process names. An agent
// that loses its supervisor ends its ranks and itself. One thread.
#pragma once
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "launch/process/agent_tag.hpp"
#include "launch/records/job_dirs.hpp"

namespace dslaunch::launch {

struct JobLiveness {
  JobLife life = JobLife::kNone;
  std::string job_id{};
  std::string evidence{};  // for kAlive and kGone, a clause: "the supervisor of its job J, pid 12, has exited"
};

// The recorded jobs whose supervisor is gone; the newest hundred.
std::vector<std::string> jobs_without_supervisor(const std::string& root);

class JobRegister {
 public:
  // `processes`: all of this machine; `root`: jobs_root(). Agents carry no job id, but their ranks name them, and
  // supervisors are in the records: all these processes belong to their job, too. `lost_jobs`: jobs whose supervisors
  // are gone, as reported by the host on which the supervisors ran.
  JobRegister(std::string root, const std::vector<ports::ProcessInfo>& processes,
              const std::vector<std::string>& lost_jobs = {});

  JobLiveness liveness_of(const ports::ProcessInfo& process);
  // The standing of a job by its id alone; kUnknown if there is no record, or the state of its supervisor is unknown
  // here.
  JobLiveness liveness_of(const std::string& job_id);

 private:
  using Identity = std::pair<pid_t, uint64_t>;

  std::string root_;
  std::set<std::string> lost_jobs_;
  std::map<Identity, ports::ProcessInfo> ranks_by_agent_;  // one rank of each agent
  std::map<Identity, std::string> supervised_;             // live supervisors -> their jobs
  std::map<std::string, std::optional<KnownJob>> records_;
};

}  // namespace dslaunch::launch
