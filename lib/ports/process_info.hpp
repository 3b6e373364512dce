// Reads information about a process from /proc. Any thread.
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
// Likewise: the agent that started the process (launch/process/agent_tag.hpp).
inline constexpr const char* kAgentVariable = "DSLAUNCH_AGENT";

// Identifies a process, and no later process with the same pid.
struct ProcessIdentity {
  pid_t pid = -1;
  uint64_t start_ticks = 0;  // since boot, in clock ticks
  bool operator==(const ProcessIdentity&) const = default;
};

// Evidence that a launcher of ranks started a process: a variable that torchrun or DeepSpeed sets and users do not
// export by hand, or the argument that their older launchers append.
enum class LauncherSign { kNone, kElasticRunId, kCrossRank, kLocalRankArgument };

struct ProcessInfo {
  ProcessIdentity identity;
  uid_t uid = 0;                          // of its files in /proc: root for a process that hides itself
  uid_t real_uid = 0, effective_uid = 0;  // who started it, and whose rights it has
  bool readable = false;                  // false: we may not inspect it, so job_id and agent_tag are unknown
  std::string name;                       // of the program file, at most 15 characters
  std::string command;                    // command line on one line, shortened; "[name]" where there is none
  std::optional<std::chrono::seconds> age;
  char state = '?';
  bool kernel_thread = false;
  pid_t parent = 0;   // 0: none, or outside this container
  pid_t group = 0;    // pid of the process group's leader, which may be gone; 0: outside this container
  pid_t session = 0;  // pid of the session's leader, likewise
  bool ignores_sighup = false;
  LauncherSign launcher_sign = LauncherSign::kNone;
  std::string job_id;     // DSLAUNCH_JOB_ID in its environment; empty: none or unreadable
  std::string agent_tag;  // DSLAUNCH_AGENT, likewise
  std::string service;    // the systemd service that it belongs to ("nginx.service"); empty: none
};

// nullopt when the process is gone.
std::optional<ProcessInfo> read_process(pid_t pid);

// The contents of /proc/PID/stat; reads one file.
struct ProcessStat {
  std::string name;
  char state = '?';
  pid_t parent = 0, group = 0, session = 0;
  uint32_t flags = 0;        // PF_* of the kernel
  uint64_t cpu_ticks = 0;    // used by all of its threads, and by its reaped children
  uint64_t start_ticks = 0;  // since boot

  bool alive() const { return state != 'Z' && state != 'X'; }  // false when ended, whether reaped or not
};
// nullopt when the process is gone.
std::optional<ProcessStat> read_process_stat(pid_t pid);

// Entries NAME=VALUE with which the process was started, each followed by a NUL. Empty for a zombie, and where we may
// not read them.
std::string environment_of(pid_t pid);

// All visible processes of this machine, ascending.
std::vector<pid_t> all_processes();

// The kernel function in which a process waits ("nfs_wait_bit_killable"); empty: it does not wait, or we may not know.
std::string wait_channel(pid_t pid);

// Whether exactly this process still exists, even as a zombie.
bool exists(const ProcessIdentity& identity);

// The innermost unit in the text of /proc/PID/cgroup, when that unit is a service: "" for a login session, a
// container's scope, or without systemd.
std::string service_in(const std::string& proc_cgroup);

// For each socket inode: the processes that have it open, ascending, as far as we may inspect them.
std::map<uint64_t, std::vector<pid_t>> owners_of_sockets(const std::set<uint64_t>& inodes);

// The user's name, or the number where the uid has no name.
std::string user_name(uid_t uid);

}  // namespace dslaunch::ports
