#include "launch/doctor/port_reclaim.hpp"

#include <chrono>
#include <optional>
#include <vector>

#include "base/format.hpp"
#include "launch/doctor/survey.hpp"
#include "launch/process/end_processes.hpp"

namespace dslaunch::launch {
namespace {

constexpr std::chrono::milliseconds kTimeout{2000};

struct Reclaimable {
  ports::ProcessIdentity identity;
  std::string command;
  std::string job_id;
};

std::optional<Reclaimable> reclaimable(const ports::Holder& holder, ProcessSurvey& survey) {
  const auto* info = survey.find(holder.pid);
  const ports::ProcessIdentity identity{holder.pid, holder.start_ticks};
  if (info == nullptr || info->identity != identity) return std::nullopt;
  const JobLiveness job = survey.liveness_of(*info);
  const bool stale = survey.classification_of(*info).verdict == Verdict::kStale;
  if (job.life != JobLife::kGone || !stale) return std::nullopt;
  return Reclaimable{identity, holder.command, job.job_id};
}

// Empty unless all holders are reclaimable.
std::vector<Reclaimable> all_reclaimable(const ports::Busy& busy) {
  HeldPorts held;
  for (const auto& holder : busy.holders) held[holder.pid].insert(busy.port);
  ProcessSurvey survey(std::move(held));
  std::vector<Reclaimable> found;
  for (const auto& holder : busy.holders) {
    auto one = reclaimable(holder, survey);
    if (!one) return {};
    found.push_back(std::move(*one));
  }
  return found;
}

void end_holders(uint16_t port, const std::vector<Reclaimable>& holders,
                 const std::function<void(const std::string&)>& say) {
  std::vector<ports::ProcessIdentity> processes;
  processes.reserve(holders.size());
  for (const auto& holder : holders) processes.push_back(holder.identity);
  auto outcomes = end_processes(processes, kTimeout);
  for (size_t i = 0; i < outcomes.size(); ++i) {
    const auto& holder = holders[i];
    say(fmt::format("port {} was held by pid {} ({}) of job {}, whose launcher has exited: {}", port,
                    holder.identity.pid, holder.command, holder.job_id, outcomes[i].text));
  }
}

}  // namespace

std::variant<ports::HeldPort, ports::Busy> hold_or_reclaim_port(const std::string& address, uint16_t port,
                                                                const std::function<void(const std::string&)>& say) {
  auto held = ports::hold_port(address, port);
  const auto* busy = std::get_if<ports::Busy>(&held);
  if (!busy || busy->holders.empty()) return held;
  const auto holders = all_reclaimable(*busy);
  if (holders.empty()) return held;
  end_holders(port, holders, say);
  return ports::hold_port(address, port);
}

}  // namespace dslaunch::launch
