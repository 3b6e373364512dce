// Doctor's findings on one host: plain values that are sent as JSON.
#pragma once
#include <sys/types.h>

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "ports/process_info.hpp"

namespace dslaunch::launch {

// Which action a finding permits.
enum class Verdict {
  kStale,    // no longer needed: --kill ends it
  kInUse,    // in use: --force ends it
  kUnknown,  // undecidable: --force ends it
  kForeign,  // another user's: never touched
};

enum class FindingKind {
  kPortHolder,       // of a port in the query
  kGpuHolder,        // of GPU memory, but of no port in the query
  kLeftoverProcess,  // of a job whose supervisor is gone, holding neither
  kStaleChild,       // below a stale process, holding neither: it ends with that process
  kZombie,           // ended, but not reaped by its parent; holds nothing
  kUnkillable,       // stuck inside the kernel (state D)
  kSharedMemory,     // a segment in /dev/shm
  kPidFile,          // names launchers or ranks that are gone
  kPrivateDir,       // directory with small files of a job that is gone: sent to its ranks, or their exceptions
};

struct Finding {
  FindingKind kind = FindingKind::kPortHolder;
  Verdict verdict = Verdict::kUnknown;
  std::string reason;   // the evidence for the verdict, a clause: "its parent is alive: pid 12 (bash)"
  bool exempt = false;  // never ended, even with --force: another user's, not visible, an ancestor of this command, or
                        // cannot be ended

  // A process; pid -1: a process that this user may not inspect.
  ports::ProcessIdentity process;
  std::string user, command, job_id;
  std::optional<std::chrono::seconds> age;
  char state = '?';          // as ps shows it
  std::string wait_channel;  // of a process in state D, if the kernel reports it
  pid_t parent = 0;
  std::string parent_command;
  std::vector<uint16_t> ports;  // the ports in the query that it holds
  uint64_t gpu_bytes = 0;

  // A file or directory.
  std::string path;
  uint64_t num_bytes = 0;

  bool is_file() const { return !path.empty(); }
  bool operator==(const Finding&) const = default;
};

struct PortState {
  uint16_t port = 0;
  bool held = false;     // by the port holders among the findings, or by a process that is not visible
  bool closing = false;  // free, but connections of an ended program are still closing (TIME_WAIT)
  bool operator==(const PortState&) const = default;
};

// One finding that --kill acted on, and the outcome.
struct Remediated {
  Finding finding;
  bool gone = false;
  std::string outcome;  // "ended", "killed", "removed", or the reason that it still exists
  bool operator==(const Remediated&) const = default;
};

struct DoctorReport {
  std::string host;
  std::string error;  // the host could not be examined; everything below is empty then
  std::vector<PortState> ports;
  std::vector<Finding> findings;  // after remediation, if there was one
  std::vector<Remediated> remediated;
  bool operator==(const DoctorReport&) const = default;
};

struct DoctorQuery {
  std::vector<uint16_t> ports;
  // Also report processes of dead jobs that hold nothing in the query. Right when the user named no port: the question
  // is then whether anything is wrong on this host.
  bool leftover_processes = true;
  std::vector<std::string> lost_jobs{};  // their supervisors are gone, as another host reports
  std::string shared_memory_dir = "/dev/shm";
  std::vector<std::string> temporary_dirs;  // where pid files and private directories may be
};

}  // namespace dslaunch::launch
