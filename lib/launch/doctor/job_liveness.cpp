#include "launch/doctor/job_liveness.hpp"

#include "base/format.hpp"

namespace dslaunch::launch {
namespace {

JobLiveness by_agent(const ports::ProcessInfo& rank) {
  const JobLife life = job_life(rank);
  const std::string& job = rank.job_id;
  if (life == JobLife::kAlive) return {life, job, fmt::format("its job {} is running: its agent is alive", job)};
  if (life == JobLife::kGone) return {life, job, fmt::format("the agent of its job {} has exited", job)};
  return {life, job, ""};
}

}  // namespace

std::vector<std::string> jobs_without_supervisor(const std::string& root) {
  constexpr size_t kMax = 100;
  std::vector<std::string> ids;
  for (const auto& job : list_jobs(root)) {
    if (ids.size() < kMax && presence_of(job.record.supervisor) == Presence::kGone) ids.push_back(job.record.job_id);
  }
  return ids;
}

JobRegister::JobRegister(std::string root, const std::vector<ports::ProcessInfo>& processes,
                         const std::vector<std::string>& lost_jobs)
    : root_(std::move(root)), lost_jobs_(lost_jobs.begin(), lost_jobs.end()) {
  for (const auto& process : processes) {
    if (auto agent = agent_of(process)) ranks_by_agent_.try_emplace({agent->pid, agent->start_ticks}, process);
  }
  for (const auto& job : list_jobs(root_)) {
    if (job.condition != Condition::kLiving) continue;
    const auto& supervisor = job.record.supervisor;
    supervised_.try_emplace({supervisor.pid, supervisor.start_ticks}, job.record.job_id);
  }
}

JobLiveness JobRegister::liveness_of(const std::string& job_id) {
  auto [entry, is_new] = records_.try_emplace(job_id);
  if (is_new) entry->second = job_on_record(root_, job_id);
  const auto& job = entry->second;
  const ProcessOnHost supervisor = job ? job->record.supervisor : ProcessOnHost{};
  switch (job ? presence_of(supervisor) : Presence::kElsewhere) {
    case Presence::kAlive:
      return {JobLife::kAlive, job_id,
              fmt::format("its job {} is running: its supervisor, pid {}, is alive", job_id, supervisor.pid)};
    case Presence::kGone:
      return {JobLife::kGone, job_id,
              fmt::format("the supervisor of its job {}, pid {}, has exited", job_id, supervisor.pid)};
    case Presence::kElsewhere:
      break;
  }
  if (!lost_jobs_.contains(job_id)) return {JobLife::kUnknown, job_id, ""};
  return {JobLife::kGone, job_id, fmt::format("the supervisor of its job {}, on another host, has exited", job_id)};
}

JobLiveness JobRegister::liveness_of(const ports::ProcessInfo& process) {
  const Identity identity{process.identity.pid, process.identity.start_ticks};
  if (auto job = supervised_.find(identity); job != supervised_.end()) return liveness_of(job->second);
  auto named = ranks_by_agent_.find(identity);
  const ports::ProcessInfo& rank = named == ranks_by_agent_.end() ? process : named->second;
  if (rank.job_id.empty()) return {};
  JobLiveness liveness = liveness_of(rank.job_id);
  return liveness.life == JobLife::kUnknown ? by_agent(rank) : liveness;
}

}  // namespace dslaunch::launch
