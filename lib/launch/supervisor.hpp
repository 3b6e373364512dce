// The one process that owns a job: the channels to the agents, the logs, the exit code. In the foreground it is
// dslaunch itself. One thread; what to do in which state is the table of job_states.hpp.
#pragma once
#include <csignal>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/deadline.hpp"
#include "launch/channel.hpp"
#include "launch/job_outcome.hpp"
#include "launch/job_output.hpp"
#include "launch/job_states.hpp"
#include "launch/launch_plan.hpp"
#include "launch/signal_inbox.hpp"
#include "spawn/agent_link.hpp"

namespace dslaunch::launch {

struct SupervisorOptions {
  bool json = false;                    // the end of the job as one document on standard output
  bool quiet = false;                   // nothing but errors of ours, ranks' standard output to the logs only
  std::vector<std::string> agent_argv;  // the program that is the agent; absolute path first
};

class Supervisor {
 public:
  Supervisor(const LaunchPlan& plan, SupervisorOptions options);
  // Until the job has ended. Its exit code.
  int run();

 private:
  // One node's agent and what is known of it.
  struct Node {
    std::unique_ptr<spawn::AgentLink> link;
    std::unique_ptr<Channel> channel;
    uint16_t master_port = 0;
    bool ready = false;
    bool done = false;    // said so itself
    bool closed = false;  // nothing more will come
  };

  void start_agents();
  JobDescription describe(const PlannedNode& node, std::vector<uint8_t> token) const;
  void turn();
  Deadline next_wakeup() const;
  void receive(size_t node);
  void handle(size_t node, const Message& message);
  void hello(size_t node, const AgentHello& hello);
  void rank_ended(const RankEnded& ended);
  void close(size_t node);
  void take_signals();
  void take_signal(int signal);
  void watch_clocks();
  void happen(JobEvent event);
  void act(JobAction action);
  void send_to_all(const Message& message);
  void stop_ranks(std::chrono::milliseconds grace);
  void abandon();
  void note_reason(StopReason reason, const std::string& text);
  int finish();

  const LaunchPlan& plan_;
  SupervisorOptions options_;
  SignalInbox signals_{SIGINT, SIGTERM, SIGHUP, SIGUSR1, SIGUSR2};
  JobOutput output_;
  std::vector<Node> nodes_;
  std::vector<RankRecord> records_;  // by rank
  JobState state_ = JobState::kStarting;
  StopReason reason_ = StopReason::kNone;
  int agent_error_ = 0;
  int num_ended_ = 0;
  Deadline time_limit_ = Deadline::never(), settled_ = Deadline::never(), overdue_ = Deadline::never();
};

}  // namespace dslaunch::launch
