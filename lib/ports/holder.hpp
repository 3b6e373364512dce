// Finds the processes that hold a TCP port on this machine. Reads the kernel's tables, changes nothing. Any thread.
#pragma once
#include <sys/types.h>

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace dslaunch::ports {

struct Holder {
  pid_t pid = -1;            // -1: a process that we may not inspect
  uint64_t start_ticks = 0;  // with the pid: identifies this process and no later one
  uid_t uid = 0;
  std::string user;                         // name of `uid`, or its number
  std::string command;                      // command line, one line; empty when unreadable
  std::optional<std::chrono::seconds> age;  // of the process
  char state = '?';                         // as ps shows it: R, S, D (unkillable for now), T (stopped), Z
  std::string job_id;                       // DSLAUNCH_JOB_ID in its environment; empty: none or unreadable
  std::string address;                      // local address of the socket, "0.0.0.0" or "::" for all
  bool listening = true;                    // false: the port is the local end of a connection
};

// Every process with a listening socket on `port`, IPv4 and IPv6 (including children that inherited one). If nothing
// listens, every process with a connection whose local port is `port`. Sockets that no process owns any more are left
// out.
std::vector<Holder> find_holders(uint16_t port);

// "port 29500 is held by pid 123 (user bob, python train.py, 3 h old)"; several holders are joined. With no visible
// holder, lists the possible reasons.
std::string describe_busy(uint16_t port, const std::vector<Holder>& holders);

// "59 s", "3 h", "2 days".
std::string describe_age(std::chrono::seconds age);

}  // namespace dslaunch::ports
