#include "launch/jobs/process_identity.hpp"

#include <unistd.h>

#include <optional>
#include <sstream>

#include "base/format.hpp"
#include "base/host_name.hpp"
#include "base/small_file.hpp"
#include "spawn/pidfd.hpp"

namespace dslaunch::launch {
namespace {

struct Stat {
  char state = '?';
  uint64_t start_ticks = 0;
};

// The name stands in parentheses and may hold any character, so the fields are counted from the last ')'.
std::optional<Stat> read_stat(pid_t pid) {
  auto text = read_whole_file(fmt::format("/proc/{}/stat", pid));
  if (!text || text->rfind(')') == std::string::npos) return std::nullopt;
  std::istringstream fields(text->substr(text->rfind(')') + 1));
  Stat stat;
  fields >> stat.state;
  constexpr int kFieldsBetweenStateAndStart = 18;
  std::string skipped;
  for (int i = 0; i < kFieldsBetweenStateAndStart; ++i) fields >> skipped;
  fields >> stat.start_ticks;
  if (!fields) return std::nullopt;
  return stat;
}

std::string boot_id() {
  std::string id = read_whole_file("/proc/sys/kernel/random/boot_id").value_or("");
  while (!id.empty() && id.back() == '\n') id.pop_back();
  return id;
}

}  // namespace

ProcessIdentity own_identity() {
  ProcessIdentity own{host_name(), boot_id(), ::getpid(), 0};
  if (auto stat = read_stat(own.pid)) own.start_ticks = stat->start_ticks;
  return own;
}

Presence presence_of(const ProcessIdentity& process) {
  if (process.host != host_name()) return Presence::kElsewhere;
  if (process.boot_id != boot_id()) return Presence::kGone;
  auto stat = read_stat(process.pid);
  bool same = stat && stat->start_ticks == process.start_ticks;
  return same && stat->state != 'Z' && stat->state != 'X' ? Presence::kAlive : Presence::kGone;
}

UniqueFd open_process(const ProcessIdentity& process) {
  UniqueFd opened = spawn::open_pidfd(process.pid);
  // Looked at after it was opened: from here on the descriptor and the number mean the same process.
  if (presence_of(process) != Presence::kAlive) opened.reset();
  return opened;
}

bool is_suspended(const ProcessIdentity& process) {
  auto stat = read_stat(process.pid);
  return stat && stat->start_ticks == process.start_ticks && (stat->state == 'T' || stat->state == 't');
}

}  // namespace dslaunch::launch
