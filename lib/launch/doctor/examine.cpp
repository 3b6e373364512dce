#include "launch/doctor/examine.hpp"

#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <map>

#include "base/format.hpp"
#include "launch/doctor/leftover_files.hpp"
#include "launch/doctor/survey.hpp"
#include "launch/plan/devices.hpp"
#include "ports/holder.hpp"
#include "ports/namespaces.hpp"
#include "ports/socket_table.hpp"

namespace dslaunch::launch {
namespace {

constexpr int kSecondLookMs = 200;

void describe_process(Finding& finding, const ports::ProcessInfo& info) {
  finding.process = info.identity;
  finding.user = ports::user_name(info.real_uid);
  finding.command = info.command;
  finding.age = info.age;
  finding.state = info.state;
  if (info.state == 'D') finding.wait_channel = ports::wait_channel(info.identity.pid);
  finding.job_id = info.job_id;
  finding.parent = info.parent;
}

// A process and why it is examined.
struct CandidateProcess {
  ports::ProcessInfo info;
  std::vector<uint16_t> ports;
  bool on_gpu = false;
  uint64_t gpu_bytes = 0;
  bool of_dead_job = false;  // if none of these: it is below a stale process
};

class Examination {
 public:
  explicit Examination(const DoctorQuery& query) : query_(query), survey_(inspect_ports(), query.lost_jobs) {}

  DoctorReport run() {
    inspect_holders();
    inspect_gpus();
    if (query_.leftover_processes) find_leftover_processes();
    inspect_children_of_stale();
    for (const auto& [pid, candidate] : candidates_) report_.findings.push_back(classify_candidate(candidate));
    find_stuck_processes();
    add(leftover_shared_memory(query_.shared_memory_dir));
    for (const auto& dir : query_.temporary_dirs) {
      add(leftover_pid_files(dir));
      add(leftover_private_dirs(dir, [this](const std::string& job) { return is_supervised(job); }));
    }
    return std::move(report_);
  }

 private:
  void add(std::vector<Finding> findings) {
    for (auto& finding : findings) report_.findings.push_back(std::move(finding));
  }

  HeldPorts inspect_ports() {
    HeldPorts held;
    for (uint16_t port : query_.ports) inspect_port(port, held);
    return held;
  }

  void inspect_port(uint16_t port, HeldPorts& held) {
    PortState state{.port = port};
    for (const auto& holder : ports::find_holders(port)) {
      state.held = true;
      if (holder.pid < 0) report_.findings.push_back(cannot_be_inspected(holder, port));
      if (holder.pid >= 0) held[holder.pid].insert(port);
    }
    if (!state.held) {
      auto sockets = ports::sockets_on(port);
      state.closing = std::any_of(sockets.begin(), sockets.end(),
                                  [](const auto& socket) { return socket.state == ports::Socket::State::kClosing; });
    }
    report_.ports.push_back(state);
  }

  static Finding cannot_be_inspected(const ports::Holder& holder, uint16_t port) {
    Classification classification = classify({.visible = false, .ours = holder.uid == ::getuid()});
    Finding finding;
    finding.verdict = classification.verdict;
    finding.reason = classification.evidence;
    finding.exempt = true;
    finding.user = holder.user;
    finding.ports = {port};
    return finding;
  }

  // Candidates are ordered by pid. Null: the process has ended, or has started since the survey.
  CandidateProcess* admit(pid_t pid) {
    const auto* info = survey_.find(pid);
    return info == nullptr ? nullptr : &candidates_.try_emplace(pid, CandidateProcess{.info = *info}).first->second;
  }

  void inspect_holders() {
    for (const auto& [pid, ports] : survey_.held_ports()) {
      if (CandidateProcess* candidate = admit(pid)) candidate->ports.assign(ports.begin(), ports.end());
    }
  }

  void inspect_gpus() {
    for (const auto& process : gpu_processes()) {
      CandidateProcess* candidate = is_on_gpu(process.pid) ? admit(process.pid) : nullptr;
      if (candidate == nullptr) continue;
      candidate->on_gpu = true;
      candidate->gpu_bytes += process.num_bytes;
    }
  }

  // The driver reports the host's pids. Inside a container such a number may be another process's, so also check that
  // the process has the driver's device open.
  static bool is_on_gpu(pid_t pid) {
    if (ports::is_in_first_pid_namespace()) return true;
    std::error_code error;
    std::filesystem::directory_iterator entry(fmt::format("/proc/{}/fd", pid), error), end;
    for (; !error && entry != end; entry.increment(error)) {
      std::error_code ignored;
      if (std::filesystem::read_symlink(entry->path(), ignored).string().starts_with("/dev/nvidia")) return true;
    }
    return false;
  }

  void find_leftover_processes() {
    for (const auto& [pid, info] : survey_.processes()) {
      if (info.state == 'Z' || !is_this_users(info)) continue;
      if (survey_.liveness_of(info).life == JobLife::kGone) admit(pid)->of_dead_job = true;
    }
  }

  // Descendants of a stale process end with it, whatever they hold.
  void inspect_children_of_stale() {
    std::vector<pid_t> parents;
    for (const auto& [pid, candidate] : candidates_) parents.push_back(pid);
    while (!parents.empty()) {
      const pid_t parent = parents.back();
      parents.pop_back();
      if (!is_stale(parent)) continue;
      for (pid_t child : survey_.living_children_of(parent)) {
        if (candidates_.contains(child) || !is_stale(child)) continue;
        admit(child);
        parents.push_back(child);
      }
    }
  }

  bool is_stale(pid_t pid) { return survey_.classification_of(*survey_.find(pid)).verdict == Verdict::kStale; }
  bool is_supervised(const std::string& job) { return survey_.liveness_of(job).life == JobLife::kAlive; }

  static FindingKind kind_of(const CandidateProcess& candidate) {
    if (!candidate.ports.empty()) return FindingKind::kPortHolder;
    if (candidate.on_gpu) return FindingKind::kGpuHolder;
    return candidate.of_dead_job ? FindingKind::kLeftoverProcess : FindingKind::kStaleChild;
  }

  Finding classify_candidate(const CandidateProcess& candidate) {
    const auto& info = candidate.info;
    const auto* parent = survey_.find(info.parent);
    Finding finding;
    describe_process(finding, info);
    finding.kind = kind_of(candidate);
    finding.job_id = survey_.liveness_of(info).job_id;
    finding.ports = candidate.ports;
    finding.gpu_bytes = candidate.gpu_bytes;
    finding.parent_command = parent ? parent->command : std::string();
    Classification classification = survey_.classification_of(info);
    finding.verdict = classification.verdict;
    finding.reason = classification.evidence;
    finding.exempt = !is_this_users(info) || survey_.runs_doctor(info.identity.pid);
    return finding;
  }

  // Zombies, and processes stuck in the kernel: in the same state at two samples.
  void find_stuck_processes() {
    auto first = stuck_now();
    if (first.empty()) return;
    ::poll(nullptr, 0, kSecondLookMs);
    for (const auto& [pid, look] : stuck_now()) {
      auto before = first.find(pid);
      bool same = before != first.end() && before->second.info.identity == look.info.identity &&
                  before->second.info.state == look.info.state && before->second.switches == look.switches;
      if (same) report_.findings.push_back(describe_stuck(look.info));
    }
  }

  struct Look {
    ports::ProcessInfo info;
    std::string switches;  // number of context switches
  };

  std::map<pid_t, Look> stuck_now() const {
    std::map<pid_t, Look> found;
    for (pid_t pid : ports::all_processes()) {
      auto info = ports::read_process(pid);
      // Holders are already reported, with their state.
      if (!info || (info->state != 'Z' && info->state != 'D') || !is_this_users(*info) || candidates_.contains(pid))
        continue;
      if (!info->kernel_thread) found.emplace(pid, Look{*info, switches_of(pid)});
    }
    return found;
  }

  static std::string switches_of(pid_t pid) {
    std::ifstream status(fmt::format("/proc/{}/status", pid));
    std::string counts;
    for (std::string line; std::getline(status, line);) {
      if (line.find("ctxt_switches") != std::string::npos) counts += line;
    }
    return counts;
  }

  static Finding describe_stuck(const ports::ProcessInfo& info) {
    Finding finding;
    describe_process(finding, info);
    ports::Lineage lineage{.child = info, .parent = ports::read_process(info.parent)};
    finding.parent_command = lineage.parent ? lineage.parent->command : std::string();
    finding.exempt = true;
    if (info.state == 'Z') {
      finding.kind = FindingKind::kZombie;
      finding.reason = fmt::format("it has ended and holds only its process number, until {} reaps it or exits",
                                   describe_parent(lineage));
      return finding;
    }
    finding.kind = FindingKind::kUnkillable;
    finding.reason = fmt::format("it waits in the kernel{}, where no signal can end it",
                                 finding.wait_channel.empty() ? "" : " (" + finding.wait_channel + ")");
    return finding;
  }

  const DoctorQuery& query_;
  DoctorReport report_;  // before survey_, which uses its ports
  ProcessSurvey survey_;
  std::map<pid_t, CandidateProcess> candidates_;
};

}  // namespace

DoctorReport examine(const DoctorQuery& query) {
  return Examination(query).run();
}

std::vector<std::string> temporary_dirs() {
  std::error_code error;
  std::vector<std::string> dirs{"/tmp"};
  auto own = std::filesystem::temp_directory_path(error);
  if (!error && !std::filesystem::equivalent(own, dirs[0], error)) dirs.push_back(own.string());
  return dirs;
}

}  // namespace dslaunch::launch
