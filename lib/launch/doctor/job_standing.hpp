// Whether the job that a process belongs to is still supervised: by the supervisor that job.json records, or, where
// that cannot be judged from here (no record, another host, another pid namespace), by the agent that the process
// names. An agent that loses its supervisor ends its ranks and itself. One thread.
#pragma once
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "launch/agent_mark.hpp"
#include "launch/jobs/job_folders.hpp"

namespace dslaunch::launch {

struct JobStanding {
  JobLife life = JobLife::kNone;
  std::string job_id{};
  std::string evidence{};  // of kAlive and kGone, a clause: "the supervisor of its job J, pid 12, is gone"
};

// Of the jobs on record, those whose supervisor is gone; the newest hundred.
std::vector<std::string> jobs_without_supervisor(const std::string& root);

class JobRegister {
 public:
  // `processes`: all of this machine; `root`: jobs_root(). Agents carry no job's id, but their ranks name them, and
  // supervisors stand in the records: these processes belong to their job, too. `lost_jobs`: their supervisors are
  // gone, as the host knows on which they ran.
  JobRegister(std::string root, const std::vector<ports::ProcessInfo>& processes,
              const std::vector<std::string>& lost_jobs = {});

  JobStanding standing_of(const ports::ProcessInfo& process);
  // Of a job by its id alone; kUnknown where there is no record, or its supervisor is not known here.
  JobStanding standing_of(const std::string& job_id);

 private:
  using Identity = std::pair<pid_t, uint64_t>;

  std::string root_;
  std::set<std::string> lost_jobs_;
  std::map<Identity, ports::ProcessInfo> ranks_by_agent_;  // one of each agent
  std::map<Identity, std::string> supervised_;             // living supervisors, and their jobs
  std::map<std::string, std::optional<KnownJob>> records_;
};

}  // namespace dslaunch::launch
