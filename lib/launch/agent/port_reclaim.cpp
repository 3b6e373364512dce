#include "launch/agent/port_reclaim.hpp"

#include <unistd.h>

#include <algorithm>
#include <chrono>

#include "base/format.hpp"
#include "launch/agent_mark.hpp"
#include "launch/end_processes.hpp"

namespace dslaunch::launch {
namespace {

constexpr std::chrono::milliseconds kPatience{2000};

bool is_reclaimable(const ports::Holder& holder) {
  auto info = holder.pid < 0 ? std::nullopt : ports::read_process(holder.pid);
  bool same = info && info->identity == ports::ProcessIdentity{holder.pid, holder.start_ticks};
  bool ours = same && info->real_uid == ::getuid() && info->effective_uid == ::getuid();
  return ours && job_life(*info) == JobLife::kGone;
}

void end_holders(const ports::Busy& busy, const std::function<void(const std::string&)>& say) {
  std::vector<ports::ProcessIdentity> processes;
  for (const auto& holder : busy.holders) processes.push_back({holder.pid, holder.start_ticks});
  auto outcomes = end_processes(processes, kPatience);
  for (size_t i = 0; i < outcomes.size(); ++i) {
    const auto& holder = busy.holders[i];
    say(fmt::format("port {} was held by pid {} ({}) of job {}, whose launcher is gone: {}", busy.port, holder.pid,
                    holder.command, holder.job_id, outcomes[i].text));
  }
}

}  // namespace

std::variant<ports::HeldPort, ports::Busy> hold_or_reclaim_port(const std::string& address, uint16_t port,
                                                                const std::function<void(const std::string&)>& say) {
  auto held = ports::hold_port(address, port);
  const auto* busy = std::get_if<ports::Busy>(&held);
  if (!busy || busy->holders.empty()) return held;
  if (!std::all_of(busy->holders.begin(), busy->holders.end(), is_reclaimable)) return held;
  end_holders(*busy, say);
  return ports::hold_port(address, port);
}

}  // namespace dslaunch::launch
