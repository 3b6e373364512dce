#include "launch/doctor/leftover_files.hpp"

#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include <charconv>
#include <ctime>
#include <filesystem>
#include <fstream>
#include <optional>
#include <set>
#include <sstream>
#include <string_view>

#include "base/format.hpp"
#include "launch/records/private_dir.hpp"
#include "ports/namespaces.hpp"

namespace dslaunch::launch {
namespace {

namespace fs = std::filesystem;

// A younger file may be about to be used.
constexpr std::time_t kYoungest = 60;

using FileId = std::pair<dev_t, ino_t>;

struct Candidate {
  std::string path, name;
  struct stat status;
  FileId id() const { return {status.st_dev, status.st_ino}; }
};

// This user's entries of one kind that have not changed for a while.
std::vector<Candidate> old_entries(const std::string& dir, mode_t type) {
  std::vector<Candidate> found;
  std::error_code error;
  for (fs::directory_iterator entry(dir, error), end; !error && entry != end; entry.increment(error)) {
    Candidate candidate{entry->path().string(), entry->path().filename().string(), {}};
    if (::lstat(candidate.path.c_str(), &candidate.status) != 0) continue;
    const auto& status = candidate.status;
    bool old_enough = std::time(nullptr) - status.st_mtime >= kYoungest;
    if ((status.st_mode & S_IFMT) == type && status.st_uid == ::getuid() && old_enough) found.push_back(candidate);
  }
  return found;
}

std::optional<pid_t> number_behind(std::string_view name, std::string_view prefix) {
  if (!name.starts_with(prefix)) return std::nullopt;
  name.remove_prefix(prefix.size());
  pid_t pid = 0;
  auto [end, error] = std::from_chars(name.data(), name.data() + name.size(), pid);
  return error == std::errc() && pid > 0 ? std::optional(pid) : std::nullopt;
}

bool lives(pid_t pid) {
  auto info = ports::read_process(pid);
  return info && info->state != 'Z' && info->state != 'X';
}

Finding leftover(FindingKind kind, const Candidate& candidate, Verdict verdict, std::string reason) {
  Finding finding;
  finding.kind = kind;
  finding.verdict = verdict;
  finding.reason = std::move(reason);
  finding.user = ports::user_name(candidate.status.st_uid);
  finding.age = std::chrono::seconds(std::time(nullptr) - candidate.status.st_mtime);
  finding.path = candidate.path;
  finding.num_bytes = S_ISREG(candidate.status.st_mode) ? static_cast<uint64_t>(candidate.status.st_size) : 0;
  return finding;
}

// ---- shared memory

struct SegmentName {
  std::optional<pid_t> planner;  // if the name contains it
  bool torch = false;
};

std::optional<SegmentName> parse_segment(std::string_view name) {
  if (auto planner = number_behind(name, "torch_")) return SegmentName{planner, true};
  if (auto planner = number_behind(name, "__KMP_REGISTERED_LIB_")) return SegmentName{planner, false};
  if (name.starts_with("nccl-") || name.starts_with("dslaunch-")) return SegmentName{};
  return std::nullopt;
}

// Files that the processes of this user have open or mapped.
struct InUse {
  std::set<FileId> files;
  bool torch_manager = false;  // torch's segment manager is running
  bool blind = false;          // there is a process that this user may not inspect
};

// Read open descriptors before mappings: a segment is open while it is being mapped, so it cannot be missed in between.
void add_open_files(pid_t pid, InUse& use) {
  std::error_code error;
  fs::directory_iterator entry(fmt::format("/proc/{}/fd", pid), error), end;
  if (error == std::errc::permission_denied) use.blind = true;
  for (; !error && entry != end; entry.increment(error)) {
    struct stat status;
    if (::stat(entry->path().c_str(), &status) == 0) use.files.insert({status.st_dev, status.st_ino});
  }
}

void add_mapped_files(pid_t pid, InUse& use) {
  std::ifstream maps(fmt::format("/proc/{}/maps", pid));
  for (std::string line; std::getline(maps, line);) {
    std::istringstream fields(line);
    std::string range, rights, offset, device;
    ino_t inode = 0;
    unsigned major_number = 0, minor_number = 0;
    if (!(fields >> range >> rights >> offset >> device >> inode) || inode == 0) continue;
    if (std::sscanf(device.c_str(), "%x:%x", &major_number, &minor_number) != 2) continue;
    use.files.insert({makedev(major_number, minor_number), inode});
  }
}

InUse files_in_use() {
  InUse use;
  for (pid_t pid : ports::all_processes()) {
    auto info = ports::read_process(pid);
    if (!info || info->state == 'Z') continue;
    bool ours = info->real_uid == ::getuid() || info->effective_uid == ::getuid();
    if (!ours && ::getuid() != 0) continue;  // such a process cannot open files that only this user may open
    if (info->name == "torch_shm_manag") use.torch_manager = true;
    add_open_files(pid, use);
    add_mapped_files(pid, use);
  }
  return use;
}

// In a container that shares the host's /dev/shm but not its processes, the users of a segment are not visible.
bool users_are_in_sight() {
  return ports::is_in_first_pid_namespace() || !ports::is_in_first_ipc_namespace();
}

Finding classify_segment(const Candidate& segment, const SegmentName& name, const InUse& use) {
  if (use.blind) {
    return leftover(FindingKind::kSharedMemory, segment, Verdict::kUnknown,
                    "a process of this user that cannot be inspected may use it");
  }
  if (!users_are_in_sight()) {
    return leftover(FindingKind::kSharedMemory, segment, Verdict::kUnknown,
                    "processes outside this container may use it");
  }
  std::string reason = "no process has it open or mapped";
  if (name.planner) reason += fmt::format(", and pid {}, which created it, has exited", *name.planner);
  return leftover(FindingKind::kSharedMemory, segment, Verdict::kStale, reason);
}

}  // namespace

std::vector<Finding> leftover_shared_memory(const std::string& dir) {
  std::vector<std::pair<Candidate, SegmentName>> segments;
  for (const auto& candidate : old_entries(dir, S_IFREG)) {
    if (auto name = parse_segment(candidate.name)) segments.emplace_back(candidate, *name);
  }
  if (segments.empty()) return {};
  InUse use = files_in_use();
  std::vector<Finding> findings;
  for (const auto& [segment, name] : segments) {
    // A sender may have closed a tensor that is still in a queue: the segment is in use while the sender or torch's
    // manager lives.
    bool wanted = (name.planner && lives(*name.planner)) || (name.torch && use.torch_manager);
    if (!wanted && !use.files.contains(segment.id())) findings.push_back(classify_segment(segment, name, use));
  }
  return findings;
}

std::vector<Finding> leftover_pid_files(const std::string& dir) {
  std::vector<Finding> findings;
  for (const auto& candidate : old_entries(dir, S_IFREG)) {
    auto owner = number_behind(candidate.name, "");
    if (!owner || candidate.name != fmt::format("{}.deepspeed", *owner) || lives(*owner)) continue;
    pid_t inside = 0;
    std::ifstream(candidate.path) >> inside;
    if (inside > 0 && lives(inside)) continue;
    findings.push_back(leftover(FindingKind::kPidFile, candidate, Verdict::kStale,
                                fmt::format("DeepSpeed's launcher, pid {}, has exited", inside > 0 ? inside : *owner)));
  }
  return findings;
}

std::vector<Finding> leftover_private_dirs(const std::string& dir,
                                           const std::function<bool(const std::string& job_id)>& is_supervised) {
  std::vector<Finding> findings;
  for (const auto& candidate : old_entries(dir, S_IFDIR)) {
    auto job = job_of_private_dir(candidate.name);
    if (!job || !private_dir_is_abandoned(candidate.path) || is_supervised(*job)) continue;
    findings.push_back(leftover(FindingKind::kPrivateDir, candidate, Verdict::kStale,
                                fmt::format("the agent of job {}, which created it, has exited", *job)));
    findings.back().job_id = *job;
  }
  return findings;
}

Result<> remove_leftover(const Finding& finding) {
  std::error_code error;
  fs::remove_all(finding.path, error);
  if (error) return Failure{error.message()};
  return {};
}

}  // namespace dslaunch::launch
