#include "ports/holder.hpp"

#include <algorithm>
#include <set>

#include "base/format.hpp"
#include "ports/process_info.hpp"
#include "ports/socket_table.hpp"

namespace dslaunch::ports {
namespace {

constexpr size_t kMaxHoldersNamed = 3;

// The sockets that decide who holds the port: the listening ones, otherwise those of live connections.
std::vector<Socket> deciding(const std::vector<Socket>& sockets) {
  for (auto wanted : {Socket::State::kListening, Socket::State::kConnected}) {
    std::vector<Socket> out;
    std::copy_if(sockets.begin(), sockets.end(), std::back_inserter(out),
                 [&](const Socket& socket) { return socket.state == wanted; });
    if (!out.empty()) return out;
  }
  return {};
}

Holder holder_of(const Socket& socket) {
  Holder holder;
  holder.uid = socket.uid;
  holder.user = user_name(socket.uid);
  holder.address = socket.address;
  holder.listening = socket.state == Socket::State::kListening;
  return holder;
}

// Returns false when the process has ended meanwhile.
bool fill_in_process(Holder& holder, pid_t pid) {
  auto info = read_process(pid);
  if (!info) return false;
  holder.pid = pid;
  holder.start_ticks = info->identity.start_ticks;
  // Keep the socket's uid: the uid in /proc is root for a process that hides itself.
  holder.command = info->command;
  holder.age = info->age;
  holder.state = info->state;
  holder.job_id = info->job_id;
  return true;
}

std::string describe_holder(const Holder& holder) {
  if (holder.pid < 0) return fmt::format("a process of user {} that cannot be inspected", holder.user);
  std::vector<std::string> facts{"user " + holder.user};
  if (!holder.command.empty()) facts.push_back(holder.command);
  if (holder.age) facts.push_back(describe_age(*holder.age) + " old");
  if (!holder.job_id.empty()) facts.push_back("job " + holder.job_id);
  if (holder.state == 'T') facts.push_back("stopped");
  if (holder.state == 'D') facts.push_back("in an uninterruptible wait");
  if (!holder.listening) facts.push_back("connected, not listening");
  return fmt::format("pid {} ({})", holder.pid, fmt::join(facts, ", "));
}

}  // namespace

std::string describe_age(std::chrono::seconds age) {
  long seconds = age.count();
  if (seconds < 60) return fmt::format("{} s", seconds);
  if (seconds < 3600) return fmt::format("{} min", seconds / 60);
  if (seconds < 2 * 86400L) return fmt::format("{} h", seconds / 3600);
  return fmt::format("{} days", seconds / 86400);
}

std::vector<Holder> find_holders(uint16_t port) {
  std::vector<Socket> sockets = deciding(sockets_on(port));
  std::set<uint64_t> inodes;
  for (const auto& socket : sockets) inodes.insert(socket.inode);
  auto owners = owners_of_sockets(inodes);

  std::vector<Holder> holders;
  std::set<pid_t> seen;  // a process may listen on several addresses
  for (const auto& socket : sockets) {
    auto pids = owners.find(socket.inode);
    if (pids == owners.end()) {
      holders.push_back(holder_of(socket));
      continue;
    }
    for (pid_t pid : pids->second) {
      Holder holder = holder_of(socket);
      if (seen.insert(pid).second && fill_in_process(holder, pid)) holders.push_back(std::move(holder));
    }
  }
  return holders;
}

std::string describe_busy(uint16_t port, const std::vector<Holder>& holders) {
  if (holders.empty()) {
    return fmt::format(
        "port {} is in use, but its holder was not found: it has just exited, or it neither "
        "listens nor is connected",
        port);
  }
  std::vector<std::string> named;
  for (size_t i = 0; i < holders.size() && i < kMaxHoldersNamed; ++i) named.push_back(describe_holder(holders[i]));
  if (holders.size() > kMaxHoldersNamed) named.push_back(fmt::format("{} more", holders.size() - kMaxHoldersNamed));
  return fmt::format("port {} is held by {}", port, fmt::join(named, " and "));
}

}  // namespace dslaunch::ports
