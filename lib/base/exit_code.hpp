// The exit codes of dslaunch and dsworker, as the manual lists them (docs/exit_codes.md).
#pragma once

namespace dslaunch {

enum class ExitCode : int {
  kSuccess = 0,
  kUsage = 64,           // unknown option or command, missing argument, options that exclude each other
  kBadInput = 65,        // config, data, model, checkpoint, hostfile or filter not usable
  kNoInput = 66,         // a named file does not exist or cannot be read
  kUnavailable = 69,     // host, port, device, slots or program not available
  kInternal = 70,        // internal bug
  kPeerLost = 71,        // a rank stopped because another rank did; never the job's own code
  kCannotCreate = 73,    // run directory or checkpoint cannot be created
  kIoError = 74,         // read or write failed, disk full
  kRunAgain = 75,        // stopped at the scheduler's request
  kCannotContinue = 76,  // loss not finite, loss scale at its minimum, --verify mismatch
  kPermission = 77,      // known_hosts, authentication, file modes
  kContradiction = 78,   // config and environment contradict
  kTimeout = 124,        // a time limit of dslaunch passed
  kNotExecutable = 126,  // exec: program not executable
  kNotFound = 127,       // exec: program not found
  kInterrupted = 130,    // Ctrl-C
  kSignalBase = 128,     // + number of the signal that ended the first failing rank
};

constexpr int to_int(ExitCode code) {
  return static_cast<int>(code);
}

// Whether the command, its input or its environment was refused: the same start is refused again.
constexpr bool is_refusal(int exit_code) {
  switch (static_cast<ExitCode>(exit_code)) {
    case ExitCode::kUsage:
    case ExitCode::kBadInput:
    case ExitCode::kNoInput:
    case ExitCode::kPermission:
    case ExitCode::kContradiction:
      return true;
    default:
      return false;
  }
}

}  // namespace dslaunch
