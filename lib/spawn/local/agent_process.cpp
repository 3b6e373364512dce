#include "spawn/local/agent_process.hpp"

#include <fcntl.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>

#include "base/error.hpp"
#include "spawn/pidfd.hpp"

namespace dslaunch::spawn {
namespace {

// posix_spawn's plan: streams, session, default signals. Owned here so that every path frees it.
class SpawnPlan {
 public:
  SpawnPlan(int input, int output) {
    ::posix_spawn_file_actions_init(&actions_);
    ::posix_spawnattr_init(&attributes_);
    ::posix_spawn_file_actions_adddup2(&actions_, input, STDIN_FILENO);
    ::posix_spawn_file_actions_adddup2(&actions_, output, STDOUT_FILENO);
    sigset_t none, all;
    ::sigemptyset(&none);
    ::sigfillset(&all);
    ::posix_spawnattr_setsigmask(&attributes_, &none);
    ::posix_spawnattr_setsigdefault(&attributes_, &all);
    ::posix_spawnattr_setflags(&attributes_, POSIX_SPAWN_SETSID | POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF);
  }
  ~SpawnPlan() {
    ::posix_spawn_file_actions_destroy(&actions_);
    ::posix_spawnattr_destroy(&attributes_);
  }
  SpawnPlan(const SpawnPlan&) = delete;
  SpawnPlan& operator=(const SpawnPlan&) = delete;

  int run(pid_t* pid, const std::vector<std::string>& argv) {
    std::vector<char*> words;
    for (const auto& word : argv) words.push_back(const_cast<char*>(word.c_str()));
    words.push_back(nullptr);
    return ::posix_spawn(pid, words[0], &actions_, &attributes_, words.data(), environ);
  }

 private:
  posix_spawn_file_actions_t actions_;
  posix_spawnattr_t attributes_;
};

}  // namespace

AgentProcess start_local_agent(const std::vector<std::string>& argv) {
  int in[2], out[2];
  if (::pipe2(in, O_CLOEXEC) != 0) throw SystemError("pipe2", "to the agent");
  UniqueFd agent_input(in[0]), to_agent(in[1]);
  if (::pipe2(out, O_CLOEXEC) != 0) throw SystemError("pipe2", "from the agent");
  UniqueFd from_agent(out[0]), agent_output(out[1]);

  AgentProcess agent;
  if (int error = SpawnPlan(agent_input.get(), agent_output.get()).run(&agent.pid, argv); error != 0) {
    throw SystemError("start the agent", argv[0], error);
  }
  agent.pidfd = open_pidfd(agent.pid);
  if (!agent.pidfd.valid()) throw SystemError("pidfd_open", "of the agent");
  ::fcntl(from_agent.get(), F_SETFL, O_NONBLOCK);
  agent.to_agent = std::move(to_agent);
  agent.from_agent = std::move(from_agent);
  return agent;
}

}  // namespace dslaunch::spawn
