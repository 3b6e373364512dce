// Collects the evidence on this machine's processes for classify(). All processes are read once, in the constructor;
// read-only. One thread.
#pragma once
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <vector>

#include "launch/doctor/classify.hpp"

namespace dslaunch::launch {

// Which process holds which of the ports in the query.
using HeldPorts = std::map<pid_t, std::set<uint16_t>>;

bool is_this_users(const ports::ProcessInfo& process);

class ProcessSurvey {
 public:
  // `lost_jobs`: see JobRegister.
  explicit ProcessSurvey(HeldPorts held_ports, const std::vector<std::string>& lost_jobs = {});

  const HeldPorts& held_ports() const { return held_ports_; }
  const std::map<pid_t, ports::ProcessInfo>& processes() const { return processes_; }
  // Null for a process that has started since.
  const ports::ProcessInfo* find(pid_t pid) const;
  const std::vector<pid_t>& living_children_of(pid_t pid) const;

  JobLiveness liveness_of(const ports::ProcessInfo& process) { return jobs_.liveness_of(process); }
  JobLiveness liveness_of(const std::string& job_id) { return jobs_.liveness_of(job_id); }

  bool runs_doctor(pid_t pid) const { return ancestors_.contains(pid); }
  // `process`: one of processes().
  Classification classification_of(const ports::ProcessInfo& process);

 private:
  Evidence evidence_of(const ports::ProcessInfo& process);
  bool is_gone(pid_t leader) const;
  std::vector<pid_t> other_children_of(pid_t pid) const;
  std::set<uint16_t> ports_of(pid_t pid) const;

  const HeldPorts held_ports_;
  const std::map<pid_t, ports::ProcessInfo> processes_;
  const std::map<pid_t, std::vector<pid_t>> children_;
  const std::set<pid_t> ancestors_;  // of this doctor process, itself included
  JobRegister jobs_;
  std::map<pid_t, Classification> classifications_;
};

}  // namespace dslaunch::launch
