// What doctor found on one host: plain values that travel as JSON.
#pragma once
#include <sys/types.h>

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "ports/process_info.hpp"

namespace dslaunch::launch {

// What may be done about a finding.
enum class Verdict {
  kStale,    // nobody needs it any more: --kill ends it
  kInUse,    // somebody does: --force ends it
  kUnknown,  // neither can be told: --force ends it
  kForeign,  // another user's: never touched
};

enum class FindingKind {
  kPortHolder,       // of a port that was asked about
  kGpuHolder,        // of GPU memory, and of no such port
  kLeftoverProcess,  // of a job whose supervisor is gone, holding neither
  kStaleChild,       // below a stale process, holding neither: it ends with that
  kZombie,           // ended, but its parent has not taken notice; holds nothing
  kUnkillable,       // stuck inside the kernel (state D)
  kSharedMemory,     // a segment in /dev/shm
  kPidFile,          // names launchers or ranks that are gone
  kPrivateFolder,    // small files of a job that is gone: sent to its ranks, or their exceptions
};

struct Finding {
  FindingKind kind = FindingKind::kPortHolder;
  Verdict verdict = Verdict::kUnknown;
  std::string reason;   // the evidence for the verdict, a clause: "its parent lives: pid 12 (bash)"
  bool spared = false;  // never ended, --force or not: another user's, out of sight, above this command, or past ending

  // A process; pid -1: one that we may not look into.
  ports::ProcessIdentity process;
  std::string user, command, job_id;
  std::optional<std::chrono::seconds> age;
  char state = '?';          // as ps shows it
  std::string wait_channel;  // of one in state D, where the kernel tells
  pid_t parent = 0;
  std::string parent_command;
  std::vector<uint16_t> ports;  // those asked about that it holds
  uint64_t gpu_bytes = 0;

  // A file or folder.
  std::string path;
  uint64_t num_bytes = 0;

  bool is_file() const { return !path.empty(); }
  bool operator==(const Finding&) const = default;
};

struct PortState {
  uint16_t port = 0;
  bool held = false;     // by the port holders among the findings, or by somebody out of sight
  bool closing = false;  // free, but connections of a program that has ended are still closing (TIME_WAIT)
  bool operator==(const PortState&) const = default;
};

// One thing that --kill acted upon, and how that went.
struct Treated {
  Finding finding;
  bool gone = false;
  std::string outcome;  // "ended", "killed", "removed", or why it is still there
  bool operator==(const Treated&) const = default;
};

struct DoctorReport {
  std::string host;
  std::string error;  // the host could not be examined; everything below is empty then
  std::vector<PortState> ports;
  std::vector<Finding> findings;  // after the treatment, where there was one
  std::vector<Treated> treated;
  bool operator==(const DoctorReport&) const = default;
};

struct DoctorQuery {
  std::vector<uint16_t> ports;
  // Also processes of dead jobs that hold nothing asked about. Right when the user named no port: then the question is
  // what is wrong here at all.
  bool leftover_processes = true;
  std::vector<std::string> lost_jobs{};  // their supervisors are gone, as another host knows
  std::string shared_memory_folder = "/dev/shm";
  std::vector<std::string> temporary_folders;  // where pid files and private folders may lie
};

}  // namespace dslaunch::launch
