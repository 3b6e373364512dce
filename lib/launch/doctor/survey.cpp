#include "launch/doctor/survey.hpp"

#include <unistd.h>

#include <algorithm>

namespace dslaunch::launch {
namespace {

using Processes = std::map<pid_t, ports::ProcessInfo>;

Processes read_all_processes() {
  Processes found;
  for (pid_t pid : ports::all_processes()) {
    if (auto info = ports::read_process(pid)) found.emplace(pid, std::move(*info));
  }
  return found;
}

bool has_ended(const ports::ProcessInfo& process) {
  return process.state == 'Z' || process.state == 'X';
}

std::map<pid_t, std::vector<pid_t>> living_children(const Processes& processes) {
  std::map<pid_t, std::vector<pid_t>> children;
  for (const auto& [pid, info] : processes) {
    if (!has_ended(info)) children[info.parent].push_back(pid);
  }
  return children;
}

std::set<pid_t> ancestors_of_this_process(const Processes& processes) {
  std::set<pid_t> pids;
  for (pid_t pid = ::getpid(); pid > 0 && pids.insert(pid).second;) {
    auto info = processes.find(pid);
    pid = info == processes.end() ? 0 : info->second.parent;
  }
  return pids;
}

std::vector<ports::ProcessInfo> values_of(const Processes& processes) {
  std::vector<ports::ProcessInfo> values;
  values.reserve(processes.size());
  for (const auto& [pid, info] : processes) values.push_back(info);
  return values;
}

}  // namespace

bool is_this_users(const ports::ProcessInfo& process) {
  return process.real_uid == ::getuid() && process.effective_uid == ::getuid();
}

ProcessSurvey::ProcessSurvey(HeldPorts held_ports, const std::vector<std::string>& lost_jobs)
    : held_ports_(std::move(held_ports)),
      processes_(read_all_processes()),
      children_(living_children(processes_)),
      ancestors_(ancestors_of_this_process(processes_)),
      jobs_(jobs_root(), values_of(processes_), lost_jobs) {}

const ports::ProcessInfo* ProcessSurvey::find(pid_t pid) const {
  auto found = processes_.find(pid);
  return found == processes_.end() ? nullptr : &found->second;
}

const std::vector<pid_t>& ProcessSurvey::living_children_of(pid_t pid) const {
  static const std::vector<pid_t> kNone;
  auto found = children_.find(pid);
  return found == children_.end() ? kNone : found->second;
}

std::set<uint16_t> ProcessSurvey::ports_of(pid_t pid) const {
  auto found = held_ports_.find(pid);
  return found == held_ports_.end() ? std::set<uint16_t>() : found->second;
}

std::vector<pid_t> ProcessSurvey::other_children_of(pid_t pid) const {
  const std::set<uint16_t> own = ports_of(pid);
  std::vector<pid_t> others = living_children_of(pid);
  std::erase_if(others, [&](pid_t child) {
    const std::set<uint16_t> held = ports_of(child);
    return std::any_of(held.begin(), held.end(), [&](uint16_t port) { return own.contains(port); });
  });
  return others;
}

// The number of a group or session is not reused as a pid as long as the group or session has members.
bool ProcessSurvey::is_gone(pid_t leader) const {
  if (leader == 0) return false;  // outside this container
  const auto* info = find(leader);
  return info == nullptr || has_ended(*info);
}

Evidence ProcessSurvey::evidence_of(const ports::ProcessInfo& process) {
  const auto* parent = process.parent > 0 ? find(process.parent) : nullptr;
  Evidence evidence{.visible = process.readable,
                    .ours = is_this_users(process),
                    .runs_doctor = ancestors_.contains(process.identity.pid),
                    .job = jobs_.liveness_of(process),
                    .lineage = {.child = process,
                                .parent = parent ? std::optional(*parent) : std::nullopt,
                                .group_leader_gone = is_gone(process.group),
                                .session_leader_gone = is_gone(process.session)},
                    .other_children = other_children_of(process.identity.pid)};
  if (parent == nullptr) return evidence;
  evidence.parent_is_of_job = jobs_.liveness_of(*parent).job_id == evidence.job.job_id;
  evidence.parent_is_stale = classification_of(*parent).verdict == Verdict::kStale;
  return evidence;
}

Classification ProcessSurvey::classification_of(const ports::ProcessInfo& process) {
  const pid_t pid = process.identity.pid;
  // Processes are read one after the other, so they may appear to be each other's parents: the entry stops the
  // recursion.
  auto [known, is_new] = classifications_.try_emplace(pid);
  if (!is_new) return known->second;
  Classification classification = classify(evidence_of(process));
  known->second = classification;
  return classification;
}

}  // namespace dslaunch::launch
