// `dslaunch doctor`: examines hosts, asks, ends what is stale, and tells. The outside world (a terminal, remote hosts)
// comes in as functions. One thread.
#pragma once
#include <functional>
#include <string>
#include <vector>

#include "launch/doctor/finding.hpp"

namespace dslaunch::launch {

struct DoctorOptions {
  std::vector<uint16_t> ports;  // empty: MASTER_PORT of the environment, and the one that torchrun and DeepSpeed take
  std::vector<std::string> hosts;  // empty: this machine
  bool kill = false, yes = false, force = false, json = false;
  std::chrono::milliseconds grace{5000};                    // between SIGTERM and SIGKILL
  std::optional<std::vector<ports::ProcessIdentity>> only;  // end these at most
  // Jobs whose supervisor is known to be gone, where it ran; other hosts cannot know, and are told.
  std::vector<std::string> lost_jobs{};
};

// What a remote `dslaunch doctor` answered.
struct RemoteAnswer {
  std::string output;  // its document
  std::string error;   // why there is none; empty: there is
};
struct RemoteQuestion {
  std::string host;
  std::vector<std::string> words;  // of the `dslaunch` there
};
// Asks all hosts at once; one answer for each, in order. `waits`: what it may spend there on processes that do not end,
// beyond the time to look.
using RemoteDoctor = std::function<std::vector<RemoteAnswer>(const std::vector<RemoteQuestion>& questions,
                                                             std::chrono::milliseconds waits)>;

enum class Answer { kYes, kNo, kInterrupted, kNobodyThere };
// Shows the text, a question, and waits for the user.
using Ask = std::function<Answer(const std::string& text)>;

struct DoctorWorld {
  std::function<bool(const std::string& host)> is_this_machine;
  RemoteDoctor remote;
  Ask ask;
  std::function<void(const std::string&)> tell;  // a progress line or the report, for people
};

struct DoctorResult {
  std::vector<DoctorReport> reports;
  int exit_code = 0;
};

// Throws UserError(64) when --kill would have to ask and nobody can answer; nothing was ended then.
DoctorResult run_doctor(const DoctorOptions& options, const DoctorWorld& world);

}  // namespace dslaunch::launch
