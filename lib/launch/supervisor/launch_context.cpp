#include "launch/supervisor/launch_context.hpp"

#include <algorithm>
#include <utility>

#include "base/duration.hpp"
#include "launch/process/programs.hpp"

namespace dslaunch::launch {

void LaunchContext::gather(Deadline time_limit) {
  if (!has_external_nodes()) return;
  const Deadline deadline = std::min(deadline_after(options.join_timeout), time_limit);
  gather_nodes(*membership, gathered, deadline);
  apply_offers(hosts, gathered.hellos);
}

void LaunchContext::leave_out(const std::vector<std::string>& lost) {
  // Node rank 0 of externally started nodes is this process; another node on its host has the same name.
  const size_t first = has_external_nodes() ? 1 : 0;
  for (size_t i = hosts.allocation.hosts.size(); i-- > first;) {
    const std::string& name = hosts.allocation.hosts[i].name;
    if (std::find(lost.begin(), lost.end(), name) == lost.end()) continue;
    hosts.allocation.hosts.erase(hosts.allocation.hosts.begin() + static_cast<std::ptrdiff_t>(i));
    hosts.reach.erase(hosts.reach.begin() + static_cast<std::ptrdiff_t>(i));
  }
}

SupervisorOptions LaunchContext::supervisor_options() {
  SupervisorOptions how;
  how.json = writes_document();
  how.quiet = options.quiet;
  how.program = own_program();
  if (!membership) return how;
  how.token = membership->token;
  how.listener = gathered.listener.get();
  how.links.resize(1);  // node rank 0 is this machine
  for (auto& link : gathered.links) how.links.push_back(std::move(link));
  gathered.links.clear();
  return how;
}

}  // namespace dslaunch::launch
