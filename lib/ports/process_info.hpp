// What /proc tells about a process. Any thread.
#pragma once
#include <sys/types.h>

#include <chrono>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

namespace dslaunch::ports {

struct ProcessInfo {
  uid_t uid = 0;
  std::string command;  // command line on one line, shortened; "[name]" where there is none
  std::optional<std::chrono::seconds> age;
  char state = '?';
  std::string job_id;
};

// Nothing when the process is gone.
std::optional<ProcessInfo> read_process(pid_t pid);

// For each of the socket inodes: the processes that have it open, ascending, as far as we may look.
std::map<uint64_t, std::vector<pid_t>> owners_of_sockets(const std::set<uint64_t>& inodes);

// The user's name, or the number where it has none.
std::string user_name(uid_t uid);

}  // namespace dslaunch::ports
