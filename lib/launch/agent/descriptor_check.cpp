#include "launch/agent/descriptor_check.hpp"

#include <sys/resource.h>

#include <algorithm>
#include <filesystem>
#include <iterator>

#include "base/error.hpp"
#include "base/format.hpp"

namespace dslaunch::launch {
namespace {

// The master port and its server, the pipes while a program is started, reads of /proc at an end.
constexpr size_t kReserve = 16;

// Of this process; the count itself opens one more.
size_t num_open(size_t limit) {
  std::error_code error;
  const std::filesystem::directory_iterator entries("/proc/self/fd", error);
  if (error) return limit;  // no descriptor is left to count with
  return static_cast<size_t>(std::distance(entries, {})) - 1;
}

}  // namespace

size_t descriptors_needed(const JobDescription& job) {
  constexpr size_t kPipesOfRank = 2;
  const bool serves_workers = job.kind == JobKind::kRun && job.node_rank == 0 && job.world_size > 1;
  const size_t connections = serves_workers ? static_cast<size_t>(job.world_size) : 0;
  return kPipesOfRank * job.ranks.size() + connections + kReserve;
}

void check_descriptors(const JobDescription& job) {
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) return;
  const size_t most = limit.rlim_cur, open = std::min(num_open(most), most), needed = descriptors_needed(job);
  if (most - open >= needed) return;
  throw UserError(
      ExitCode::kUnavailable,
      fmt::format("the limit of open files is too low: {} rank{} of this node need{} {} more, and the hard limit "
                  "of {} leaves {}; raise it (ulimit -Hn, nofile in limits.conf, LimitNOFILE of a service)",
                  job.ranks.size(), job.ranks.size() == 1 ? "" : "s", job.ranks.size() == 1 ? "s" : "", needed, most,
                  most - open));
}

}  // namespace dslaunch::launch
