// A separate program that reads the ranks' stacks (stacks/collect_stacks.hpp), until its answer has arrived: a debugger
// takes seconds and may hang, and the agent must not block. One thread.
#pragma once
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "base/deadline.hpp"
#include "launch/channel/message.hpp"
#include "spawn/process.hpp"

namespace dslaunch::launch {

class StackCollection {
 public:
  // `pids`: of the ranks. Starts the program if there are any.
  StackCollection(int64_t request, std::map<int, pid_t> pids);
  // Ends the program.
  ~StackCollection();
  StackCollection(const StackCollection&) = delete;
  StackCollection& operator=(const StackCollection&) = delete;

  int fd() const { return process_.out.get(); }
  Deadline deadline() const { return deadline_; }
  // A child of this process was reaped; from now on its pid may belong to another process.
  void on_reaped(pid_t pid);
  // Reads available bytes without waiting. Returns the answer once: when the program has ended, or at the deadline.
  std::optional<RankStacks> poll_once();

 private:
  void start(const std::vector<pid_t>& pids);
  RankStacks answer() const;

  const int64_t request_;
  const std::map<int, pid_t> pids_;
  spawn::Process process_;
  bool is_reaped_ = true;
  Deadline deadline_;
  std::string out_, error_;
};

}  // namespace dslaunch::launch
