#include "launch/records/process_on_host.hpp"

#include <unistd.h>

#include "base/host_name.hpp"
#include "base/small_file.hpp"
#include "ports/namespaces.hpp"
#include "ports/process_info.hpp"

namespace dslaunch::launch {
namespace {

std::string boot_id() {
  std::string id = read_whole_file("/proc/sys/kernel/random/boot_id").value_or("");
  while (!id.empty() && id.back() == '\n') id.pop_back();
  return id;
}

}  // namespace

ProcessOnHost this_process() {
  ProcessOnHost own{host_name(), boot_id(), ::getpid(), 0, ports::own_namespace("pid")};
  if (auto stat = ports::read_process_stat(own.pid)) own.start_ticks = stat->start_ticks;
  return own;
}

Presence presence_of(const ProcessOnHost& process) {
  if (process.host != host_name()) return Presence::kElsewhere;
  if (process.boot_id != boot_id()) return Presence::kGone;
  const bool known = process.pid_namespace != 0;
  if (known && process.pid_namespace != ports::own_namespace("pid")) return Presence::kElsewhere;
  auto stat = ports::read_process_stat(process.pid);
  bool same = stat && stat->start_ticks == process.start_ticks;
  return same && stat->alive() ? Presence::kAlive : Presence::kGone;
}

std::optional<spawn::HeldProcess> open_process(const ProcessOnHost& process) {
  if (presence_of(process) != Presence::kAlive) return std::nullopt;
  auto held = spawn::HeldProcess::hold(process.pid);
  if (held && held->identity().start_ticks != process.start_ticks) held.reset();
  return held;
}

bool is_suspended(const ProcessOnHost& process) {
  auto stat = ports::read_process_stat(process.pid);
  return stat && stat->start_ticks == process.start_ticks && (stat->state == 'T' || stat->state == 't');
}

}  // namespace dslaunch::launch
