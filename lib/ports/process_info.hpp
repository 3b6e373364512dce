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

// Set in the environment of each process of a job. Not a secret.
inline constexpr const char* kJobIdVariable = "DSLAUNCH_JOB_ID";
// Likewise: which agent has started it (launch/agent_mark.hpp).
inline constexpr const char* kAgentVariable = "DSLAUNCH_AGENT";

// A process and no later one with the same number.
struct ProcessIdentity {
  pid_t pid = -1;
  uint64_t start_ticks = 0;  // since boot, in clock ticks
  bool operator==(const ProcessIdentity&) const = default;
};

// What says that a launcher of ranks has started a process: a variable that torchrun or DeepSpeed sets and nobody
// exports by hand, or the argument that their older launchers append.
enum class LauncherSign { kNone, kElasticRunId, kCrossRank, kLocalRankArgument };

struct ProcessInfo {
  ProcessIdentity identity;
  uid_t uid = 0;                          // of its files in /proc: root for a process that hides itself
  uid_t real_uid = 0, effective_uid = 0;  // who started it, whose rights it has
  bool readable = false;                  // false: we may not look into it, so job_id and agent_mark are unknown
  std::string name;                       // of the program file, at most 15 characters
  std::string command;                    // command line on one line, shortened; "[name]" where there is none
  std::optional<std::chrono::seconds> age;
  char state = '?';
  bool kernel_thread = false;
  pid_t parent = 0;   // 0: none, or outside of this container
  pid_t group = 0;    // pid of the process group's leader, who may be gone; 0: outside of this container
  pid_t session = 0;  // pid of the session's leader, likewise
  bool ignores_sighup = false;
  LauncherSign launcher_sign = LauncherSign::kNone;
  std::string job_id;      // DSLAUNCH_JOB_ID of its environment; empty: none or unreadable
  std::string agent_mark;  // DSLAUNCH_AGENT, likewise
  std::string service;     // the systemd service that it is part of ("nginx.service"); empty: none
};

// Nothing when the process is gone.
std::optional<ProcessInfo> read_process(pid_t pid);

// What /proc/PID/stat says; one file to read.
struct ProcessStat {
  std::string name;
  char state = '?';
  pid_t parent = 0, group = 0, session = 0;
  uint32_t flags = 0;        // PF_* of the kernel
  uint64_t cpu_ticks = 0;    // used by all of its threads, and by children of it that it has reaped
  uint64_t start_ticks = 0;  // since boot

  bool alive() const { return state != 'Z' && state != 'X'; }  // not ended, whether reaped or not
};
// Nothing when the process is gone.
std::optional<ProcessStat> read_process_stat(pid_t pid);

// Entries NAME=VALUE as the process was started with, each with a NUL behind it. Empty for a zombie, and where we may
// not look.
std::string environment_of(pid_t pid);

// All of this machine that we may see, ascending.
std::vector<pid_t> all_processes();

// Where inside the kernel a process waits ("nfs_wait_bit_killable"); empty: nowhere, or we may not know.
std::string wait_channel(pid_t pid);

// Whether this very process still exists, a zombie included.
bool exists(const ProcessIdentity& identity);

// The innermost unit in the text of /proc/PID/cgroup, when it is a service: "" for a login session, a container's
// scope, or no systemd at all.
std::string service_in(const std::string& proc_cgroup);

// For each of the socket inodes: the processes that have it open, ascending, as far as we may look.
std::map<uint64_t, std::vector<pid_t>> owners_of_sockets(const std::set<uint64_t>& inodes);

// The user's name, or the number where it has none.
std::string user_name(uid_t uid);

}  // namespace dslaunch::ports
