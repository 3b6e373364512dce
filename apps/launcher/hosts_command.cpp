// `dslaunch hosts`: shows the hosts that hostfile, filters and this machine resolve to.
#include <cstdio>

#include "base/format.hpp"
#include "base/log.hpp"
#include "base/printable.hpp"
#include "commands.hpp"
#include "hostfile/resolve.hpp"
#include "launch/plan/hosts.hpp"
#include "options.hpp"

namespace dslaunch::launcher {

static void print_table(const hostfile::Allocation& allocation) {
  std::string text = fmt::format("{} rank(s) on {} host(s) from {}\n", allocation.world_size(), allocation.hosts.size(),
                                 allocation.source);
  int rank = 0;
  for (const auto& host : allocation.hosts) {
    int last = rank + static_cast<int>(host.slots.size()) - 1;
    text += fmt::format(
        "  {:<24} slots {:<20} ranks {}{}{}\n", host.name, fmt::format("{}", fmt::join(host.slots, ",")),
        rank == last ? std::to_string(rank) : fmt::format("{}-{}", rank, last),
        host.user.empty() ? "" : "  user " + host.user, host.port ? fmt::format("  port {}", *host.port) : "");
    rank = last + 1;
  }
  print_text(text);
}

int hosts_command(const Arguments& arguments) {
  auto options = read_hosts_options(arguments);
  if (!options) return 0;
  auto source = launch::find_source(*options);
  if (!source.notice.empty()) log::info("{}", source.notice);
  const auto list = launch::list_hosts(*options, std::move(source));
  const auto allocation = launch::resolve_hosts(*options, list, launch::DeviceUser::kAnyProgram).allocation;
  if (options->json) {
    std::fputs((hostfile::hosts_json(allocation) + "\n").c_str(), stdout);
  } else {
    print_table(allocation);
  }
  return 0;
}

}  // namespace dslaunch::launcher
