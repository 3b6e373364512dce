// The agent: one per node, between the launcher and the ranks of this node. Starts the ranks, forwards their output and
// exits, stops them on request or when the launcher is gone, and leaves no process behind. One thread, the process's
// main one: the kernel ties the ranks' lives to it. (A store server brings its own thread, and a second thread sends
// heartbeats while the job is prepared.)
#pragma once
#include <csignal>
#include <memory>
#include <optional>
#include <set>
#include <vector>

#include "base/deadline.hpp"
#include "launch/agent/error_files.hpp"
#include "launch/agent/job_files.hpp"
#include "launch/agent/master_port.hpp"
#include "launch/agent/node_echo.hpp"
#include "launch/agent/node_status.hpp"
#include "launch/agent/rank_process.hpp"
#include "launch/agent/rank_watch.hpp"
#include "launch/agent/stack_collection.hpp"
#include "launch/channel/channel.hpp"
#include "launch/channel/heartbeat_monitor.hpp"
#include "launch/event_loop/signal_inbox.hpp"
#include "launch/plan/binding.hpp"
#include "spawn/exit_diagnostics.hpp"

namespace dslaunch::launch {

struct AgentOptions {
  AgentHello hello;
  // The master port's socket, held by the launcher so far; only for node rank 0. Not valid: the agent binds the port.
  UniqueFd listener;
  // Set if this node was started externally: signals to it are meant for the job, and the ranks' output goes here too.
  // Outlives the agent; null: the launcher started the agent.
  NodeEcho* echo = nullptr;
};

class Agent {
 public:
  Agent(ChannelToLauncher channel, AgentOptions options);
  // Until every rank of this node has ended and the launcher knows. True when nothing failed.
  bool run();
  // On an externally started node: waits for the launcher's last message. Empty when the launcher is gone.
  std::optional<JobEnded> await_job_ended();
  // With an echo: until all its output is written, or the deadline passes; a signal discards the rest.
  void drain_echo(Deadline deadline) { options_.echo->drain(signals_, deadline); }
  // The signal that ended an externally started node before there was a job that the signal could be meant for.
  std::optional<int> exit_signal() const { return exit_signal_; }
  // The launcher has sent the job's description.
  bool knows_job() const { return job_.has_value(); }
  // The job has ended, with its exit code: from now on no signal changes it.
  void ignore_signals() { signals_.ignore_from_now_on(); }

 private:
  void poll_once();
  void poll_after_ranks();
  Deadline next_wakeup() const;
  void send(const MessageToLauncher& message);
  void receive();
  void on_launcher_lost(const char* how);
  void handle(const MessageToAgent& message);
  void take_job_end(const JobEnded& ended);
  void describe_job(const JobDescription& job);
  void prepare_job();
  void start_ranks(uint16_t master_port);
  bool start_rank(const RankJob& rank, const RankBinding& binding, uint16_t master_port);
  void stop(std::chrono::milliseconds grace);
  void take_signals();
  void leave(int signal);
  void on_termination_signal(int signal);
  void reap();
  void end_rank(RankProcess& rank, const spawn::EndedChild& ended);
  void read_outputs();
  void forward_output(const RankOutput& output);
  bool may_read_ranks() const;
  bool is_externally_started() const { return options_.echo != nullptr; }
  void watch_clocks();
  void report_missing();
  void collect_stacks(const StacksWanted& wanted);
  void send_stacks();
  void read_status(const StatusWanted& wanted);
  void send_status();
  void kill_when_due();
  void report_unkillable();
  bool finished() const;
  void cleanup();
  void finish();
  void flush_remaining();

  // Of all ranks together; only advances.
  enum class Stage {
    kAwaited,   // not to be started yet
    kRunning,   // or the ranks have ended by themselves
    kStopping,  // until kill_at_; some may never have been started
    kKilled,
  };

  // Between two reports of ranks that have not joined the store.
  static constexpr std::chrono::milliseconds kProgressReportInterval{5000};

  AgentOptions options_;
  ChannelToLauncher channel_;
  HeartbeatMonitor heartbeats_;
  SignalInbox signals_{SIGCHLD, SIGTERM, SIGINT, SIGQUIT, SIGHUP, SIGUSR1, SIGUSR2};
  spawn::ExitDiagnostics ends_;
  std::optional<JobDescription> job_;
  std::unique_ptr<MasterPort> master_port_;
  std::unique_ptr<ErrorFiles> error_files_;
  std::unique_ptr<JobFiles> job_files_;
  std::vector<RankBinding> bindings_;  // by local rank, once the job is prepared
  std::vector<RankProcess> ranks_;
  RankWatch rank_watch_;                   // of an `exec` of several ranks, else empty
  std::optional<StackCollection> stacks_;  // in progress
  NodeStatusReader status_;
  Stage stage_ = Stage::kAwaited;
  Deadline kill_at_ = Deadline::never();
  Deadline stuck_at_ = Deadline::never();  // processes that are not gone by then do not end by SIGKILL
  std::set<pid_t> stuck_;                  // ranks that are not waited for any longer
  Deadline next_progress_report_ = Deadline::never();
  Deadline flush_deadline_ =
      Deadline::after(std::chrono::milliseconds(0));  // until when a silent launcher may still read
  bool missing_reported_ = false;                     // some ranks were reported missing
  bool input_has_ended_ = false;                      // the launcher is gone, once its last messages are handled
  bool launcher_gone_ = false, failed_ = false, exit_requested_ = false;
  std::optional<JobEnded> job_ended_;
  std::optional<int> exit_signal_;
};

// `dslaunch agent`, as another dslaunch starts it.
struct AgentCommand {
  int listener = -1;            // descriptor of the master port's socket; -1: none
  bool report_devices = false;  // in the greeting
  bool write_preamble = false;  // before the first frame: a login shell's greeting may precede it
  std::string stacks;           // processes whose stacks to print, instead of running a job; empty: none
  std::string cleanup_job;      // a job whose processes on this host to end, instead of running a job; empty: none
};

// Talks over standard input and output, and detaches both from all other use. Returns the exit code of the process.
int run_agent_on_standard_streams(const AgentCommand& command);

}  // namespace dslaunch::launch
