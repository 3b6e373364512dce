// The messages between launcher and agent (docs/control_channel.md). Plain values; wire.hpp has the encoding. A
// message has a type code and the list of its fields (field_list.hpp); what it consists of has only the list.
#pragma once
#include <chrono>
#include <cstdint>
#include <limits>
#include <map>
#include <string>
#include <tuple>
#include <variant>
#include <vector>

#include "launch/channel/binding_request.hpp"
#include "launch/channel/field_list.hpp"
#include "launch/records/job_kind.hpp"
#include "launch/stacks/group_stacks.hpp"
#include "spawn/exit_cause.hpp"
#include "spawn/stuck_process.hpp"

namespace dslaunch::launch {

// Incremented whenever a message changes: launcher and agent of different versions refuse each other.
inline constexpr uint32_t kWireVersion = 6;

inline constexpr int kMaxExitCode = 255, kMaxSignal = 64;

// ---- types of other rooms in messages

template <>
inline constexpr auto kFieldsOf<spawn::ExitCause> = std::tuple(up_to(spawn::ExitCause::Kind::kNotStarted,
                                                                     &spawn::ExitCause::kind),
                                                               between(0, kMaxExitCode, &spawn::ExitCause::number),
                                                               &spawn::ExitCause::core_dumped, &spawn::ExitCause::hint);
template <>
inline constexpr auto kFieldsOf<spawn::StuckProcess> = std::tuple(&spawn::StuckProcess::pid,
                                                                  &spawn::StuckProcess::start_ticks,
                                                                  &spawn::StuckProcess::state,
                                                                  &spawn::StuckProcess::wait_channel);
template <>
inline constexpr auto kFieldsOf<RankStack> = std::tuple(&RankStack::rank, &RankStack::pid, &RankStack::source,
                                                        &RankStack::text, &RankStack::note);

// ---- launcher -> agent

// One rank of the agent's node. `env` is added to the job's.
struct RankJob {
  int rank = 0, local_rank = 0;
  std::vector<std::string> argv;
  std::map<std::string, std::string> env;

  static constexpr auto kFields = std::tuple(&RankJob::rank, &RankJob::local_rank, &RankJob::argv, &RankJob::env);
};

// How the agent's own environment is used for the ranks.
enum class EnvironmentBase : uint8_t {
  kNothing,  // only `env` of the job: the agent is a child of the launcher
  kAgents,   // the agent's own environment, overridden by the job's: another machine
};

// What must be equal on every host of a job, compared before any rank starts. Empty or zero: not checked.
struct Preflight {
  std::string worker_version;  // the output of `dsworker --version`
  std::string model;           // path
  uint64_t model_bytes = 0, model_fingerprint = 0;

  static constexpr auto kFields =
      std::tuple(&Preflight::worker_version, &Preflight::model, &Preflight::model_bytes, &Preflight::model_fingerprint);
};

// The answer to AgentHello, once.
struct JobDescription {
  std::string job_id;
  JobKind kind = JobKind::kExec;
  std::vector<uint8_t> token;  // 32 bytes
  std::string master_addr;
  uint16_t master_port = 0;  // 0: the agent of node rank 0 lets the kernel choose
  int world_size = 1, num_nodes = 1, node_rank = 0;
  std::string host;                         // this node's name as the user wrote it
  std::vector<std::string> rank_hosts;      // of every rank of the job
  std::vector<std::string> node_addresses;  // numeric, of all nodes; the host name for a node that knows none
  std::string cwd;
  EnvironmentBase environment_base = EnvironmentBase::kNothing;
  std::map<std::string, std::string> env;  // of every rank, except for what the launch adds
  std::string venv;                        // virtual environment on the host; empty: none
  BindingRequest binding;
  int restart_count = 0, max_restarts = 0;
  // Small files of the launching host, path -> content: the agent keeps copies, and replaces the originals' paths in
  // the ranks' arguments by the copies' paths.
  std::map<std::string, std::string> files;
  Preflight preflight;
  std::chrono::milliseconds silence_limit{0};  // if the launcher is silent for so long the ranks are ended; 0: never
  std::chrono::milliseconds heartbeat_interval{0};  // the launcher expects a message from the agent so often; 0: none
  std::vector<RankJob> ranks;

  static constexpr uint8_t kType = 1;
  static constexpr auto kFields =
      std::tuple(&JobDescription::job_id, up_to(JobKind::kExec, &JobDescription::kind), &JobDescription::token,
                 &JobDescription::master_addr, &JobDescription::master_port, &JobDescription::world_size,
                 &JobDescription::num_nodes, &JobDescription::node_rank, &JobDescription::host,
                 &JobDescription::rank_hosts, &JobDescription::node_addresses, &JobDescription::cwd,
                 up_to(EnvironmentBase::kAgents, &JobDescription::environment_base), &JobDescription::env,
                 &JobDescription::venv, &JobDescription::binding, &JobDescription::restart_count,
                 &JobDescription::max_restarts, &JobDescription::files, &JobDescription::preflight,
                 &JobDescription::silence_limit, &JobDescription::heartbeat_interval, &JobDescription::ranks);
};

// All agents are ready: start the ranks. The port is the one that node rank 0 holds.
struct StartRanks {
  uint16_t master_port = 0;

  static constexpr uint8_t kType = 2;
  static constexpr auto kFields = std::tuple(&StartRanks::master_port);
};

// Ends all ranks: SIGTERM now, SIGKILL after `grace` for the rest. Zero: SIGKILL at once. A second StopRanks can only
// shorten the time.
struct StopRanks {
  std::chrono::milliseconds grace{0};

  static constexpr uint8_t kType = 3;
  static constexpr auto kFields = std::tuple(&StopRanks::grace);
};

// To every rank's process group, without ending the job (SIGUSR1, SIGUSR2 of an `exec`).
struct SignalRanks {
  int signal = 0;

  static constexpr uint8_t kType = 4;
  static constexpr auto kFields = std::tuple(between(1, kMaxSignal, &SignalRanks::signal));
};

// Requests the stacks of these ranks; RankStacks answers, after the debugger has had its time. A new request ends the
// previous one.
struct StacksWanted {
  int64_t request = 0;
  std::vector<int> ranks;

  static constexpr uint8_t kType = 17;
  static constexpr auto kFields = std::tuple(&StacksWanted::request, &StacksWanted::ranks);
};

// Requests what the ranks of this node tell and use; NodeStatus answers. A new request replaces an unanswered one.
struct StatusWanted {
  int64_t request = 0;
  bool with_gpus = false;  // the driver's figures too, which take longer

  static constexpr uint8_t kType = 20;
  static constexpr auto kFields = std::tuple(&StatusWanted::request, &StatusWanted::with_gpus);
};

// The last message to the agent of an externally started node: how the job ended.
struct JobEnded {
  int exit_code = 0;
  bool again = false;   // the job is restarted: connect again
  std::string summary;  // the first failure, for this host's terminal

  static constexpr uint8_t kType = 14;
  static constexpr auto kFields =
      std::tuple(between(0, kMaxExitCode, &JobEnded::exit_code), &JobEnded::again, &JobEnded::summary);
};

// ---- both directions

// Sent when there was nothing else to send for a while: the sender is alive.
struct Heartbeat {
  static constexpr uint8_t kType = 12;
  static constexpr auto kFields = std::tuple();
};

// ---- agent -> launcher

// First message, once.
struct AgentHello {
  uint32_t version = kWireVersion;
  std::string program_version;
  int64_t pid = 0;
  std::string host_name;               // the machine's own host name
  std::string address;                 // numeric, at which other hosts reach it; empty: not known
  std::vector<std::string> addresses;  // numeric, all of the machine's: its ranks may connect from any of them
  // From an externally started node: what it offers.
  std::vector<std::string> devices;  // by slot, as CUDA_VISIBLE_DEVICES would name them; empty: CPU ranks
  std::string device_error;          // why some of its GPUs are missing there, if the driver reports a reason
  int num_slots = 0;                 // 0: the launcher knows
  std::string command;  // the command it was started with (see job_command.hpp); empty: the launcher started it
  uint64_t command_hash = 0;

  static constexpr uint8_t kType = 5;
  static constexpr auto kFields = std::tuple(
      &AgentHello::version, &AgentHello::program_version, rest_only_if(&AgentHello::version, kWireVersion),
      &AgentHello::pid, &AgentHello::host_name, &AgentHello::address, &AgentHello::addresses, &AgentHello::devices,
      &AgentHello::device_error, &AgentHello::num_slots, &AgentHello::command, &AgentHello::command_hash);
};

// The agent has prepared the job; node rank 0 holds the master port (0: the job needs none).
struct AgentReady {
  uint16_t master_port = 0;

  static constexpr uint8_t kType = 6;
  static constexpr auto kFields = std::tuple(&AgentReady::master_port);
};

// The agent cannot carry out the job; ends its part.
struct AgentFailed {
  int exit_code = 70;
  std::string message;

  static constexpr uint8_t kType = 7;
  static constexpr auto kFields = std::tuple(between(1, kMaxExitCode, &AgentFailed::exit_code), &AgentFailed::message);
};

// A signal to the dslaunch of an externally started node, to stop the job or for its ranks: the launcher acts as if it
// had received the signal itself.
struct SignalTaken {
  int signal = 0;

  static constexpr uint8_t kType = 15;
  static constexpr auto kFields = std::tuple(between(1, kMaxSignal, &SignalTaken::signal));
};

// From the agent that serves the store: ranks that have started but not joined. Sent repeatedly until there are none.
struct RanksMissing {
  std::vector<int> ranks;

  static constexpr uint8_t kType = 13;
  static constexpr auto kFields = std::tuple(&RanksMissing::ranks);
};

struct RankStarted {
  int rank = 0;
  int64_t pid = 0;

  static constexpr uint8_t kType = 8;
  static constexpr auto kFields = std::tuple(&RankStarted::rank, &RankStarted::pid);
};

enum class Stream : uint8_t { kOut = 0, kErr = 1 };

struct RankOutput {
  int rank = 0;
  Stream stream = Stream::kOut;
  std::string bytes;

  static constexpr uint8_t kType = 9;
  static constexpr auto kFields =
      std::tuple(&RankOutput::rank, up_to(Stream::kErr, &RankOutput::stream), &RankOutput::bytes);
};

// Sent after all output that the rank had written when it ended.
struct RankEnded {
  int rank = 0;
  spawn::ExitCause cause;
  bool stopped_by_us = false;  // the agent had told it to stop before it ended

  static constexpr uint8_t kType = 10;
  static constexpr auto kFields = std::tuple(&RankEnded::rank, &RankEnded::cause, &RankEnded::stopped_by_us);
};

// A process that SIGKILL has not ended and that is not waited for any longer: a rank's, which gets no RankEnded, or
// (-1) one that a rank left behind.
struct ProcessStuck {
  int rank = -1;
  spawn::StuckProcess process;

  static constexpr uint8_t kType = 19;
  static constexpr auto kFields =
      std::tuple(between(-1, std::numeric_limits<int>::max(), &ProcessStuck::rank), &ProcessStuck::process);
};

// Last message: every rank has ended and its leftover processes are gone, except for stuck ones.
struct AgentDone {
  int64_t num_leftovers = 0;

  static constexpr uint8_t kType = 11;
  static constexpr auto kFields = std::tuple(&AgentDone::num_leftovers);
};

// The activity of a rank of an `exec`, as far as the kernel shows it.
enum class RankState : uint8_t {
  kBusy = 0,
  kIdle = 1,     // for a while it has printed nothing, and all of its processes have used almost no CPU time
  kStopped = 2,  // idle, and a process of it is stopped or held by a debugger
  kBlocked = 3,  // idle, and a process of it waits in the kernel for a disk, a network file system or a driver
};
struct RankActivity {
  int rank = 0;
  RankState state = RankState::kBusy;
  int64_t pid = 0;  // the process that is stopped or blocked

  bool operator==(const RankActivity&) const = default;

  static constexpr auto kFields =
      std::tuple(&RankActivity::rank, up_to(RankState::kBlocked, &RankActivity::state), &RankActivity::pid);
};
// Ranks whose state differs from the last report; each rank starts as busy.
struct RankStates {
  std::vector<RankActivity> changed;

  static constexpr uint8_t kType = 16;
  static constexpr auto kFields = std::tuple(&RankStates::changed);
};

// The answer to StacksWanted.
struct RankStacks {
  int64_t request = 0;
  std::vector<RankStack> stacks;  // of those of the ranks that are running
  std::string error;              // why there are none; otherwise empty

  static constexpr uint8_t kType = 18;
  static constexpr auto kFields = std::tuple(&RankStacks::request, &RankStacks::stacks, &RankStacks::error);
};

// A rank that runs. -1: not known.
struct RankSample {
  int rank = 0;
  char process_state = '?';             // of the process that was started: a letter, as in /proc/PID/stat
  int64_t step = -1, total_steps = -1;  // of a `run` that has done a step
  int64_t step_us = -1, busy_us = -1;   // its duration; of that, forward and backward
  int64_t device_bytes = -1;            // peak of its allocator on the device
  int64_t resident_bytes = -1;          // of all its processes
  std::string hang_report;              // of a `run` of several ranks: comm/hang_report.hpp; may be empty
  int gpu_percent = -1;                 // of its device, by whatever program
  int64_t gpu_bytes = -1, gpu_total_bytes = -1;

  static constexpr auto kFields = std::tuple(
      &RankSample::rank, &RankSample::process_state, &RankSample::step, &RankSample::total_steps, &RankSample::step_us,
      &RankSample::busy_us, &RankSample::device_bytes, &RankSample::resident_bytes, &RankSample::hang_report,
      between(-1, 100, &RankSample::gpu_percent), &RankSample::gpu_bytes, &RankSample::gpu_total_bytes);
};

// The answer to StatusWanted.
struct NodeStatus {
  int64_t request = 0;
  int load_percent = 0;  // 100: one process runs or waits to run, on average over a minute
  int num_cores = 0;
  int64_t memory_bytes = 0, available_bytes = 0;  // of the host
  std::vector<RankSample> ranks;

  static constexpr uint8_t kType = 21;
  static constexpr auto kFields =
      std::tuple(&NodeStatus::request, &NodeStatus::load_percent, &NodeStatus::num_cores, &NodeStatus::memory_bytes,
                 &NodeStatus::available_bytes, &NodeStatus::ranks);
};

// What an end can receive. A type added here does not compile until that end handles it (Agent::handle,
// Running::handle).
using MessageToAgent =
    std::variant<JobDescription, StartRanks, StopRanks, SignalRanks, StacksWanted, StatusWanted, JobEnded, Heartbeat>;
using MessageToLauncher =
    std::variant<AgentHello, AgentReady, AgentFailed, RankStarted, RankOutput, RankEnded, ProcessStuck, RanksMissing,
                 RankStates, RankStacks, NodeStatus, SignalTaken, AgentDone, Heartbeat>;

}  // namespace dslaunch::launch
