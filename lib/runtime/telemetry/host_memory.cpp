#include "runtime/telemetry/host_memory.hpp"

#include <algorithm>
#include <fstream>
#include <iterator>
#include <map>
#include <sstream>

namespace dslaunch::runtime {
namespace {

// The first number in a file; empty for "max" or if there is no file.
std::optional<int64_t> read_number(const std::string& path) {
  std::ifstream in(path);
  int64_t number = 0;
  return in >> number ? std::optional(number) : std::nullopt;
}

// Parses the lines "Name:  123 kB" of a /proc file, in bytes.
std::map<std::string, int64_t> bytes_by_name(const std::string& text) {
  std::map<std::string, int64_t> out;
  std::istringstream lines(text);
  std::string line;
  while (std::getline(lines, line)) {
    std::istringstream words(line);
    std::string name;
    int64_t kilobytes = 0;
    if (words >> name >> kilobytes) out[name] = kilobytes * 1024;
  }
  return out;
}

std::optional<int64_t> available_of_host() {
  const int64_t available = read_system_memory().available;
  return available > 0 ? std::optional(available) : std::nullopt;
}

// Where the memory limits of cgroups lie: those of version 2, and those of version 1.
struct GroupFiles {
  const char* prefix;  // of the line in /proc/self/cgroup that ends with this process's group
  const char* root;
  const char *limit, *used;
  const char *active_cache, *inactive_cache;  // lines of memory.stat, with those of the groups inside
};
constexpr GroupFiles kGroupFiles[] = {
    {"0::", "/sys/fs/cgroup", "/memory.max", "/memory.current", "active_file", "inactive_file"},
    {":memory:", "/sys/fs/cgroup/memory", "/memory.limit_in_bytes", "/memory.usage_in_bytes", "total_active_file",
     "total_inactive_file"},
};

// What the group uses without the pages of files, which the kernel drops when it needs memory.
int64_t used_without_cache(int64_t used, const GroupFiles& files, const std::string& group) {
  std::ifstream in(files.root + group + "/memory.stat");
  std::string name;
  for (int64_t bytes = 0; in >> name >> bytes;) {
    if (name == files.active_cache || name == files.inactive_cache) used -= bytes;
  }
  return std::max<int64_t>(0, used);
}

// In a container the mount may show the group as the root.
std::string own_group(const GroupFiles& files) {
  std::ifstream in("/proc/self/cgroup");
  for (std::string line; std::getline(in, line);) {
    const size_t at = line.find(files.prefix);
    if (at != std::string::npos) return line.substr(at + std::string(files.prefix).size());
  }
  return "/";
}

// The least that the limits of this process's cgroup and of those around it leave.
std::optional<int64_t> available_of_group() {
  std::optional<int64_t> least;
  for (const auto& files : kGroupFiles) {
    for (std::string group = own_group(files);; group.erase(group.find_last_of('/'))) {
      const auto limit = read_number(files.root + group + files.limit);
      const auto used = read_number(files.root + group + files.used);
      if (limit && used) {
        const int64_t left = std::max<int64_t>(0, *limit - used_without_cache(*used, files, group));
        least = least ? std::min(*least, left) : left;
      }
      if (group.empty() || group == "/") break;
    }
  }
  return least;
}

}  // namespace

std::optional<int64_t> read_available_memory() {
  const auto host = available_of_host(), group = available_of_group();
  if (host && group) return std::min(*host, *group);
  return host ? host : group;
}

HostMemory parse_process_status(const std::string& status) {
  auto bytes = bytes_by_name(status);
  return {.anonymous = bytes["RssAnon:"],
          .file = bytes["RssFile:"],
          .shared = bytes["RssShmem:"],
          .resident = bytes["VmRSS:"],
          .peak = bytes["VmHWM:"]};
}

SystemMemory parse_memory_info(const std::string& text) {
  auto bytes = bytes_by_name(text);
  return {.total = bytes["MemTotal:"], .available = bytes["MemAvailable:"]};
}

SystemMemory read_system_memory() {
  std::ifstream in("/proc/meminfo");
  return parse_memory_info({std::istreambuf_iterator<char>(in), {}});
}

std::optional<HostMemory> read_host_memory() {
  std::ifstream in("/proc/self/status");
  if (!in) return std::nullopt;
  return parse_process_status({std::istreambuf_iterator<char>(in), {}});
}

}  // namespace dslaunch::runtime
