#include "ports/process_info.hpp"

#include <dirent.h>
#include <pwd.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <memory>
#include <sstream>
#include <string_view>

#include "base/format.hpp"
#include "base/parse_int.hpp"
#include "base/small_file.hpp"

namespace dslaunch::ports {
namespace {

constexpr size_t kMaxCommand = 120;

struct CloseDirectory {
  void operator()(DIR* directory) const { closedir(directory); }
};
using Directory = std::unique_ptr<DIR, CloseDirectory>;

Directory open_directory(const std::string& path) {
  return Directory(opendir(path.c_str()));
}

std::string read_file(const std::string& path) {
  return read_whole_file(path).value_or("");
}

// Arguments are separated by NUL; characters that could harm a terminal become blanks.
std::string one_line(std::string text) {
  while (!text.empty() && text.back() == '\0') text.pop_back();
  for (char& c : text) {
    unsigned char byte = static_cast<unsigned char>(c);
    if (byte < 0x20 || byte == 0x7f) c = ' ';
  }
  if (text.size() > kMaxCommand) text = text.substr(0, kMaxCommand - 3) + "...";
  return text;
}

// The name is in parentheses and may contain any character, so the fields are counted from the last ')'.
std::optional<ProcessStat> parse_stat(const std::string& text) {
  size_t open = text.find('('), close = text.rfind(')');
  if (open == std::string::npos || close == std::string::npos) return std::nullopt;
  ProcessStat out;
  out.name = text.substr(open + 1, close - open - 1);
  std::istringstream fields(text.substr(close + 1));
  std::string terminal, skipped;
  fields >> out.state >> out.parent >> out.group >> out.session >> terminal >> skipped >> out.flags;
  constexpr int kPageFaultFields = 4, kTimeFields = 4, kFieldsBeforeStart = 4;
  for (int i = 0; i < kPageFaultFields; ++i) fields >> skipped;
  for (int i = 0; i < kTimeFields; ++i) {
    int64_t ticks = 0;
    fields >> ticks;
    out.cpu_ticks += static_cast<uint64_t>(ticks);
  }
  for (int i = 0; i < kFieldsBeforeStart; ++i) fields >> skipped;
  fields >> out.start_ticks;
  if (!fields) return std::nullopt;
  return out;
}

std::optional<std::chrono::seconds> age_from(uint64_t start_ticks) {
  std::istringstream uptime(read_file("/proc/uptime"));
  double seconds_since_boot = 0;
  if (!(uptime >> seconds_since_boot)) return std::nullopt;
  double started = static_cast<double>(start_ticks) / static_cast<double>(sysconf(_SC_CLK_TCK));
  return std::chrono::seconds(static_cast<long>(std::max(0.0, seconds_since_boot - started)));
}

// The rest of the first entry that starts with `prefix`, in a text with NUL between entries.
std::optional<std::string_view> entry_behind(std::string_view text, std::string_view prefix) {
  for (size_t at = 0; at < text.size();) {
    size_t end = std::min(text.find('\0', at), text.size());
    std::string_view entry = text.substr(at, end - at);
    if (entry.starts_with(prefix)) return entry.substr(prefix.size());
    at = end + 1;
  }
  return std::nullopt;
}

std::string variable_in(const std::string& environment, const std::string& name) {
  return one_line(std::string(entry_behind(environment, name + "=").value_or("")));
}

LauncherSign launcher_sign_in(const std::string& environment, const std::string& arguments) {
  if (entry_behind(environment, "TORCHELASTIC_RUN_ID=")) return LauncherSign::kElasticRunId;
  if (entry_behind(environment, "CROSS_RANK=")) return LauncherSign::kCrossRank;
  // Matches "--local_rank 0" as well as "--local_rank=0"; newer versions of torch use a hyphen.
  for (const char* option : {"--local_rank", "--local-rank"}) {
    auto rest = entry_behind(arguments, option);
    if (rest && (rest->empty() || rest->front() == '=')) return LauncherSign::kLocalRankArgument;
  }
  return LauncherSign::kNone;
}

// "Uid: real effective ..." of /proc/PID/status.
void read_users(const std::string& status, ProcessInfo& info) {
  info.real_uid = info.effective_uid = info.uid;
  size_t at = status.find("\nUid:");
  if (at == std::string::npos) return;
  std::istringstream fields(status.substr(at + 5));
  fields >> info.real_uid >> info.effective_uid;
}

// "SigIgn: MASK" of /proc/PID/status, in hexadecimal; the lowest bit is signal 1, SIGHUP.
bool ignores_sighup(const std::string& status) {
  constexpr std::string_view kField = "\nSigIgn:";
  const size_t at = status.find(kField);
  if (at == std::string::npos) return false;
  return (std::strtoull(status.c_str() + at + kField.size(), nullptr, 16) & 1U) != 0;
}

// A service that doctor itself runs in (an sshd without logind, for example) says nothing about the processes in it.
std::string foreign_service_of(const std::string& dir) {
  static const std::string own = service_in(read_file("/proc/self/cgroup"));
  std::string service = service_in(read_file(dir + "/cgroup"));
  return service == own ? std::string() : service;
}

// "socket:[123]" -> 123
std::optional<uint64_t> socket_inode(const std::string& link) {
  char target[64];
  ssize_t length = readlink(link.c_str(), target, sizeof(target));
  std::string_view text(target, length > 0 ? static_cast<size_t>(length) : 0);
  constexpr std::string_view kPrefix = "socket:[";
  if (!text.starts_with(kPrefix) || !text.ends_with(']')) return std::nullopt;
  return parse_int<uint64_t>(text.substr(kPrefix.size(), text.size() - kPrefix.size() - 1));
}

std::set<uint64_t> open_sockets_of(const std::string& pid) {
  std::set<uint64_t> inodes;
  const std::string dir = "/proc/" + pid + "/fd";
  Directory directory = open_directory(dir);
  if (!directory) return inodes;
  while (const dirent* entry = readdir(directory.get())) {
    if (auto inode = socket_inode(dir + "/" + entry->d_name)) inodes.insert(*inode);
  }
  return inodes;
}

}  // namespace

std::optional<ProcessStat> read_process_stat(pid_t pid) {
  return parse_stat(read_file(fmt::format("/proc/{}/stat", pid)));
}

std::string environment_of(pid_t pid) {
  return read_file(fmt::format("/proc/{}/environ", pid));
}

std::optional<ProcessInfo> read_process(pid_t pid) {
  const std::string dir = "/proc/" + std::to_string(pid);
  struct stat owner;
  auto parsed = read_process_stat(pid);
  if (!parsed || stat(dir.c_str(), &owner) != 0) return std::nullopt;
  ProcessInfo info;
  info.identity = {pid, parsed->start_ticks};
  info.uid = owner.st_uid;
  const std::string status = read_file(dir + "/status");
  read_users(status, info);
  info.ignores_sighup = ignores_sighup(status);
  info.name = one_line(parsed->name);
  const std::string arguments = read_file(dir + "/cmdline");
  info.command = one_line(arguments);
  if (info.command.empty()) info.command = "[" + info.name + "]";
  info.age = age_from(parsed->start_ticks);
  info.state = parsed->state;
  info.parent = parsed->parent;
  info.group = parsed->group;
  info.session = parsed->session;
  constexpr uint32_t kKernelThread = 0x00200000;  // PF_KTHREAD
  info.kernel_thread = (parsed->flags & kKernelThread) != 0;
  info.readable = access((dir + "/environ").c_str(), R_OK) == 0;
  std::string environment = environment_of(pid);
  info.job_id = variable_in(environment, kJobIdVariable);
  info.agent_tag = variable_in(environment, kAgentVariable);
  info.launcher_sign = launcher_sign_in(environment, arguments);
  info.service = foreign_service_of(dir);
  return info;
}

std::vector<pid_t> all_processes() {
  std::vector<pid_t> pids;
  Directory proc = open_directory("/proc");
  while (const dirent* entry = proc ? readdir(proc.get()) : nullptr) {
    if (auto pid = parse_int<uint64_t>(entry->d_name)) pids.push_back(static_cast<pid_t>(*pid));
  }
  std::sort(pids.begin(), pids.end());
  return pids;
}

std::string wait_channel(pid_t pid) {
  std::string channel = read_file(fmt::format("/proc/{}/wchan", pid));
  return channel == "0" ? std::string() : one_line(std::move(channel));
}

bool exists(const ProcessIdentity& identity) {
  auto stat = read_process_stat(identity.pid);
  return stat && stat->start_ticks == identity.start_ticks;
}

std::string service_in(const std::string& proc_cgroup) {
  std::istringstream lines(proc_cgroup);
  for (std::string line; std::getline(lines, line);) {
    size_t path = line.find('/');
    // systemd maintains the line of cgroup version 2 and version 1's "name=systemd".
    bool systemds = line.starts_with("0::") || line.find(":name=systemd:") != std::string::npos;
    if (!systemds || path == std::string::npos) continue;
    for (size_t end = line.size(); end > path;) {
      size_t slash = line.rfind('/', end - 1);
      std::string_view part(line.data() + slash + 1, end - slash - 1);
      if (part.ends_with(".service")) return std::string(part);
      if (part.ends_with(".scope") || part.ends_with(".slice")) break;
      end = slash;
    }
  }
  return {};
}

std::map<uint64_t, std::vector<pid_t>> owners_of_sockets(const std::set<uint64_t>& inodes) {
  std::map<uint64_t, std::vector<pid_t>> owners;
  for (pid_t pid : all_processes()) {
    for (uint64_t inode : open_sockets_of(std::to_string(pid))) {
      if (inodes.contains(inode)) owners[inode].push_back(pid);
    }
  }
  return owners;
}

std::string user_name(uid_t uid) {
  std::vector<char> buffer(4096);
  passwd entry;
  passwd* found = nullptr;
  while (getpwuid_r(uid, &entry, buffer.data(), buffer.size(), &found) == ERANGE) buffer.resize(buffer.size() * 2);
  return found ? found->pw_name : std::to_string(uid);
}

}  // namespace dslaunch::ports
