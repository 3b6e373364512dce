// `dslaunch doctor`: examines hosts, asks, ends stale processes, and reports. Functions stand for the outside world (a
// terminal, remote hosts). One thread.
#pragma once
#include <functional>
#include <string>
#include <vector>

#include "launch/doctor/finding.hpp"

namespace dslaunch::launch {

struct DoctorOptions {
  std::vector<uint16_t> ports;     // empty: MASTER_PORT of the environment, and the default of torchrun and DeepSpeed
  std::vector<std::string> hosts;  // empty: this machine
  bool kill = false, yes = false, force = false, json = false;
  std::chrono::milliseconds grace{5000};                    // between SIGTERM and SIGKILL
  std::optional<std::vector<ports::ProcessIdentity>> only;  // end no processes but these
  // Jobs whose supervisor is known to be gone on the host where it ran; other hosts cannot know this, so it is passed
  // to them.
  std::vector<std::string> lost_jobs{};
};

// The answer of a remote `dslaunch doctor`.
struct RemoteAnswer {
  std::string output;  // its JSON document
  std::string error;   // why there is no document; empty: there is one
};
struct RemoteQuestion {
  std::string host;
  std::vector<std::string> args;  // arguments of the remote `dslaunch`
};
// Queries all hosts at the same time; returns one answer per host, in order. `waits`: how long the remote doctor may
// wait for processes that do not end, in addition to the time for examining.
using RemoteDoctor = std::function<std::vector<RemoteAnswer>(const std::vector<RemoteQuestion>& questions,
                                                             std::chrono::milliseconds waits)>;

enum class Answer { kYes, kNo, kInterrupted, kNoTerminal };
// Shows the text, which is a question, and waits for the user's answer.
using Ask = std::function<Answer(const std::string& text)>;

struct DoctorWorld {
  std::function<bool(const std::string& host)> is_this_machine;
  RemoteDoctor remote;
  Ask ask;
  std::function<void(const std::string&)> print;  // shows a progress line or the report to people
};

struct DoctorResult {
  std::vector<DoctorReport> reports;
  int exit_code = 0;
};

// Throws UserError(64) when --kill would have to ask and nobody can answer; nothing has been ended then.
DoctorResult run_doctor(const DoctorOptions& options, const DoctorWorld& world);

}  // namespace dslaunch::launch
