// The one process that owns a job: the links to the agents, the logs, the exit code. In the foreground it is dslaunch
// itself. One thread; job_lifecycle.hpp decides what to do in which state.
#pragma once
#include <chrono>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/deadline.hpp"
#include "launch/event_loop/signal_inbox.hpp"
#include "launch/jobs/live_job.hpp"
#include "launch/plan/launch_plan.hpp"
#include "launch/supervisor/job_lifecycle.hpp"
#include "launch/supervisor/job_output.hpp"
#include "launch/supervisor/job_report.hpp"
#include "launch/supervisor/node_session.hpp"
#include "launch/supervisor/signal_echoes.hpp"
#include "launch/supervisor/stack_request.hpp"
#include "launch/supervisor/stall_watch.hpp"
#include "spawn/agent_link.hpp"

namespace dslaunch::launch {

struct SupervisorOptions {
  bool json = false;                        // standard output is reserved for the JSON document
  bool quiet = false;                       // the workers' standard output goes to their logs only
  LiveJob* live = nullptr;                  // the job's record, socket and files; outlives this, never null
  std::string program;                      // the running dslaunch, absolute: it is the agent of this machine
  std::vector<uint8_t> token;               // 32 bytes; empty: a fresh one
  int listener = -1;                        // for the agent of node rank 0: see open_node_link
  Deadline time_limit = Deadline::never();  // of the job, shared by all its attempts
  std::chrono::milliseconds preparation_time{300000};  // for the agents to be ready, once they know the job
  // By node; empty: the supervisor opens the link.
  std::vector<std::unique_ptr<spawn::AgentLink>> links;
};

// Of a plan's ranks before any of them has started.
std::vector<RankRecord> records_of(const LaunchPlan& plan);

class Supervisor {
 public:
  Supervisor(LaunchPlan plan, SupervisorOptions options);
  ~Supervisor();

  // Until the job has ended and all its processes are gone.
  JobReport run();
  // Sends the last message to externally started nodes.
  void dismiss(const JobEnded& last_word);
  // For terminal lines and documents on standard output; drain_output() returns once readers and files have everything.
  JobOutput& output() { return output_; }
  void drain_output();
  // The wait before the next attempt. Not kNone: cut short by a request to stop.
  StopReason pause_before_restart(std::chrono::milliseconds length);
  // A request to stop that came after the attempt or while a failure was ending it, also while output was drained.
  StopReason late_reason();
  // There is no further attempt: from now on no signal changes the outcome.
  void ignore_signals() { signals_.ignore_from_now_on(); }

 private:
  void open_links();
  std::unique_ptr<spawn::AgentLink> open_link(const PlannedNode& node) const;
  void poll_once();
  void watch_files();
  // For a reader, or a file, that accepts nothing while the job ends.
  std::chrono::milliseconds reader_patience() const {
    return lifecycle_.asked_for() ? Terminal::kAskedTimeout : Terminal::kTimeout;
  }
  std::chrono::milliseconds files_patience() const;
  Deadline next_wakeup() const;
  void receive(size_t node);
  void handle(NodeSession& node, const Message& message);
  void greet(NodeSession& node, const AgentHello& hello);
  void check_startup();
  void describe_job();
  void mention_lost_gpus();
  std::vector<std::string> addresses_of_nodes() const;
  std::string address_of_node_0() const;
  void say_of(const NodeSession& node, const std::string& what);
  void agent_ready(NodeSession& node, const AgentReady& ready);
  void agent_failed(NodeSession& node, const AgentFailed& failed);
  RankRecord& record_of(const NodeSession& node, int rank);
  void rank_started(const NodeSession& node, const RankStarted& started);
  void rank_wrote(const NodeSession& node, const RankOutput& output);
  void rank_ended(const NodeSession& node, const RankEnded& ended);
  void take_states(const NodeSession& node, const RankStates& states);
  void ask_for_stacks(const JobSocket::StacksAsked& asked);
  void take_stacks(const NodeSession& node, const RankStacks& stacks);
  void answer_stacks_when_due();
  void process_stuck(const NodeSession& node, const ProcessStuck& stuck);
  void note_stuck(const PlannedNode& node, int rank, const spawn::StuckProcess& process);
  // `misunderstanding`: why the supervisor gives up on the node; empty: the agent's end of the link has closed.
  void close(NodeSession& node, const std::optional<spawn::LinkFailure>& misunderstanding = std::nullopt);
  void lose(NodeSession& node, const spawn::LinkFailure& failure);
  void end_if_all_over();
  void take_signals();
  void take_signal(int signal, const NodeSession* from = nullptr);  // null: this process
  void report_errors();
  void watch_clocks();
  void watch_nodes();
  void tell_who_is_missing();
  void happen(JobEvent event) { carry_out(lifecycle_.happen(event, Deadline::Clock::now())); }
  void carry_out(const JobOrder& order);
  void note_times(const JobOrder& order);
  void send_to_all(const Message& message);
  void stop_ranks(std::chrono::milliseconds grace);
  void abandon();
  void await_links();
  void hear_pausing_node(NodeSession& node);
  void note_stuck_here(const std::vector<PlannedNode>& nodes, const spawn::StuckProcess& process);
  void leave_nothing_behind(const JobEnded& last_word) noexcept;
  JobReport report();
  std::string tell_failures() const;
  std::string tell_agent_failure() const;

  LaunchPlan plan_;
  SupervisorOptions options_;
  std::vector<uint8_t> token_;
  SignalInbox signals_;
  JobOutput output_;
  std::deque<NodeSession> nodes_;    // by node rank
  std::vector<RankRecord> records_;  // by rank
  std::vector<JobReport::HostFailure> failures_;
  std::vector<StuckOnHost> stuck_;
  std::optional<JobReport::HostFailure> agent_failure_;  // the one that began the job's end
  std::vector<int> missing_;                             // ranks that have not joined the store
  StallWatch stalls_;
  std::optional<StackRequest> stack_request_;  // not answered yet
  int64_t num_stack_requests_ = 0;
  JobLifecycle lifecycle_;
  // A reader accepted none of the final output within its timeout: readers are not waited for any longer.
  bool readers_are_over_ = false;
  bool described_ = false;                        // the agents have got the job's description
  std::map<int, UserSignalEchoes> user_signals_;  // by signal
  int num_ended_ = 0;
  std::optional<Deadline::Clock::time_point> ranks_started_;
  std::chrono::milliseconds lived_{0};  // see JobReport
  Deadline next_progress_report_;
  Deadline prepared_ = Deadline::never();
  Deadline files_due_ = Deadline::never();  // at the end: how long to wait for stalled files
  // While the job ends and the files have no room: until when some of their pending bytes must be written.
  Deadline files_progress_due_ = Deadline::never();
  size_t files_pending_ = 0;
};

}  // namespace dslaunch::launch
