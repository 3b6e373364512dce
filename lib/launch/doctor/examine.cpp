#include "launch/doctor/examine.hpp"

#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <map>
#include <set>

#include "base/format.hpp"
#include "launch/doctor/judge.hpp"
#include "launch/doctor/leftover_files.hpp"
#include "launch/plan/devices.hpp"
#include "ports/holder.hpp"
#include "ports/namespaces.hpp"
#include "ports/socket_table.hpp"

namespace dslaunch::launch {
namespace {

constexpr int kSecondLookMs = 200;

std::set<pid_t> ancestors_of_this_process() {
  std::set<pid_t> pids;
  for (pid_t pid = ::getpid(); pid > 0 && pids.insert(pid).second;) {
    auto info = ports::read_process(pid);
    pid = info ? info->parent : 0;
  }
  return pids;
}

bool is_ours(const ports::ProcessInfo& info) {
  return info.real_uid == ::getuid() && info.effective_uid == ::getuid();
}

std::string describe_parent(pid_t parent, const std::string& command) {
  return parent == 0 ? std::string("a process outside of this container") : fmt::format("pid {} ({})", parent, command);
}

void describe_process(Finding& finding, const ports::ProcessInfo& info) {
  finding.process = info.identity;
  finding.user = ports::user_name(info.real_uid);
  finding.command = info.command;
  finding.age = info.age;
  finding.state = info.state;
  finding.job_id = info.job_id;
  finding.parent = info.parent;
}

// What is known of one process that holds something or carries a job's id.
struct Patient {
  ports::ProcessInfo info;
  std::vector<uint16_t> ports;
  bool on_gpu = false;
  uint64_t gpu_bytes = 0;
};

class Examination {
 public:
  explicit Examination(const DoctorQuery& query) : query_(query), ancestors_(ancestors_of_this_process()) {}

  DoctorReport run() {
    for (uint16_t port : query_.ports) look_at_port(port);
    look_at_gpus();
    if (query_.leftover_processes) look_for_leftover_processes();
    for (const auto& [pid, patient] : patients_) report_.findings.push_back(judge_patient(patient));
    pass_staleness_on(report_.findings);
    look_for_stuck_processes();
    add(leftover_shared_memory(query_.shared_memory_folder));
    for (const auto& folder : query_.temporary_folders) {
      add(leftover_pid_files(folder));
      add(leftover_private_folders(folder));
    }
    return std::move(report_);
  }

 private:
  void add(std::vector<Finding> findings) {
    for (auto& finding : findings) report_.findings.push_back(std::move(finding));
  }

  void look_at_port(uint16_t port) {
    PortState state{.port = port};
    for (const auto& holder : ports::find_holders(port)) {
      state.held = true;
      auto info = holder.pid < 0 ? std::nullopt : ports::read_process(holder.pid);
      if (holder.pid < 0) report_.findings.push_back(out_of_sight(holder, port));
      if (info) patients_.try_emplace(holder.pid, Patient{.info = *info}).first->second.ports.push_back(port);
    }
    if (!state.held) {
      auto sockets = ports::sockets_on(port);
      state.closing = std::any_of(sockets.begin(), sockets.end(),
                                  [](const auto& socket) { return socket.state == ports::Socket::State::kClosing; });
    }
    report_.ports.push_back(state);
  }

  static Finding out_of_sight(const ports::Holder& holder, uint16_t port) {
    Judgement judgement = judge({.visible = false, .ours = holder.uid == ::getuid()});
    Finding finding;
    finding.verdict = judgement.verdict;
    finding.reason = judgement.reason;
    finding.spared = true;
    finding.user = holder.user;
    finding.ports = {port};
    return finding;
  }

  void look_at_gpus() {
    for (const auto& process : gpu_processes()) {
      auto info = ports::read_process(process.pid);
      if (!info || !is_on_gpu(process.pid)) continue;
      Patient& patient = patients_.try_emplace(process.pid, Patient{.info = *info}).first->second;
      patient.on_gpu = true;
      patient.gpu_bytes += process.num_bytes;
    }
  }

  // The driver counts the machine's pids. Inside a container such a number may be another process's, so it has to have
  // the driver's device open.
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

  void look_for_leftover_processes() {
    for (pid_t pid : ports::all_processes()) {
      auto info = ports::read_process(pid);
      if (!info || info->state == 'Z' || !is_ours(*info)) continue;
      if (job_life(*info) == JobLife::kGone) patients_.try_emplace(pid, Patient{.info = *info});
    }
  }

  Finding judge_patient(const Patient& patient) {
    const auto& info = patient.info;
    auto parent = info.parent > 0 ? ports::read_process(info.parent) : std::nullopt;
    Finding finding;
    describe_process(finding, info);
    finding.kind = !patient.ports.empty() ? FindingKind::kPortHolder
                   : patient.on_gpu       ? FindingKind::kGpuHolder
                                          : FindingKind::kLeftoverProcess;
    finding.ports = patient.ports;
    finding.gpu_bytes = patient.gpu_bytes;
    finding.parent_command = parent ? parent->command : std::string();
    Judgement judgement = judge({.visible = info.readable,
                                 .ours = is_ours(info),
                                 .runs_doctor = ancestors_.contains(info.identity.pid),
                                 .job = job_life(info),
                                 .job_id = info.job_id,
                                 .parenthood = ports::parenthood(info, parent),
                                 .parent = describe_parent(info.parent, finding.parent_command),
                                 .service = info.service});
    finding.verdict = judgement.verdict;
    finding.reason = judgement.reason;
    finding.parent_decides = judgement.parent_decides;
    finding.spared = !is_ours(info) || ancestors_.contains(info.identity.pid);
    return finding;
  }

  // Ended but not collected, or inside the kernel without moving: the same at two looks.
  void look_for_stuck_processes() {
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
    std::string switches;  // how often it was given and taken the processor
  };

  std::map<pid_t, Look> stuck_now() const {
    std::map<pid_t, Look> found;
    for (pid_t pid : ports::all_processes()) {
      auto info = ports::read_process(pid);
      // Holders are reported already, with their state.
      if (!info || (info->state != 'Z' && info->state != 'D') || !is_ours(*info) || patients_.contains(pid)) continue;
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
    auto parent = ports::read_process(info.parent);
    finding.parent_command = parent ? parent->command : std::string();
    finding.spared = true;
    if (info.state == 'Z') {
      finding.kind = FindingKind::kZombie;
      finding.reason =
          fmt::format("it has ended and holds nothing but its number; it goes when {} takes notice or ends",
                      describe_parent(info.parent, finding.parent_command));
      return finding;
    }
    finding.kind = FindingKind::kUnkillable;
    std::ifstream channel(fmt::format("/proc/{}/wchan", info.identity.pid));
    std::string place;
    channel >> place;
    finding.reason = fmt::format("it waits inside the kernel{} and no signal reaches it until that is over",
                                 place.empty() || place == "0" ? "" : " (" + place + ")");
    return finding;
  }

  const DoctorQuery& query_;
  const std::set<pid_t> ancestors_;
  DoctorReport report_;
  std::map<pid_t, Patient> patients_;
};

}  // namespace

DoctorReport examine(const DoctorQuery& query) {
  return Examination(query).run();
}

std::vector<std::string> temporary_folders() {
  std::error_code error;
  std::vector<std::string> folders{"/tmp"};
  auto own = std::filesystem::temp_directory_path(error);
  if (!error && !std::filesystem::equivalent(own, folders[0], error)) folders.push_back(own.string());
  return folders;
}

}  // namespace dslaunch::launch
