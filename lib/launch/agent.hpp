// The agent: one a node, between the launcher and the ranks of this node. Starts them, carries their output and their
// ends back, stops them when it is told to or when the launcher is gone, and leaves nothing behind. One thread, the
// process's main one: the kernel ties the ranks' lives to it. (A store server brings its own thread.)
#pragma once
#include <csignal>
#include <memory>
#include <optional>
#include <vector>

#include "base/deadline.hpp"
#include "launch/channel.hpp"
#include "launch/error_files.hpp"
#include "launch/master_port.hpp"
#include "launch/rank_environment.hpp"
#include "launch/rank_process.hpp"
#include "launch/signal_inbox.hpp"
#include "spawn/oom_watch.hpp"

namespace dslaunch::launch {

class Agent {
 public:
  explicit Agent(Channel channel);
  // Until every rank of this node has ended and the launcher knows. The exit code of the process.
  int run();

 private:
  void turn();
  Deadline next_wakeup() const;
  void receive();
  void handle(const Message& message);
  void describe_job(const JobDescription& job);
  void start_ranks(uint16_t master_port);
  bool start_rank(const RankJob& rank, const NodeFacts& node);
  void stop(std::chrono::milliseconds grace);
  void take_signals();
  void reap();
  void end_rank(RankProcess& rank, spawn::ExitCause cause);
  void read_outputs();
  void kill_when_due();
  bool finished() const;
  void sweep();
  void finish();

  Channel channel_;
  SignalInbox signals_{SIGCHLD, SIGTERM, SIGINT, SIGHUP};
  spawn::OomWatch oom_;
  std::optional<JobDescription> job_;
  std::unique_ptr<MasterPort> master_port_;
  std::unique_ptr<ErrorFiles> error_files_;
  std::vector<RankProcess> ranks_;
  std::optional<Deadline> kill_at_;  // there once the ranks were told to stop
  bool started_ = false, killed_ = false, launcher_gone_ = false, failed_ = false;
};

// `dslaunch agent`: speaks over standard input and output, which are then taken away from everything else.
int run_agent_on_standard_streams();

}  // namespace dslaunch::launch
