#include "runtime/telemetry/host_memory.hpp"

#include <algorithm>
#include <fstream>
#include <iterator>
#include <sstream>

namespace dslaunch::runtime {
namespace {

// The first number of a file; nothing for "max" or no file.
std::optional<int64_t> read_number(const char* path) {
  std::ifstream in(path);
  int64_t number = 0;
  return in >> number ? std::optional(number) : std::nullopt;
}

std::optional<int64_t> available_of_host() {
  std::ifstream in("/proc/meminfo");
  std::string key, unit;
  int64_t kilobytes = 0;
  while (in >> key >> kilobytes) {
    if (key == "MemAvailable:") return kilobytes * 1024;
    std::getline(in, unit);
  }
  return std::nullopt;
}

std::optional<int64_t> available_of_group() {
  const auto limit = read_number("/sys/fs/cgroup/memory.max"), used = read_number("/sys/fs/cgroup/memory.current");
  return limit && used ? std::optional(std::max<int64_t>(0, *limit - *used)) : std::nullopt;
}

}  // namespace

std::optional<int64_t> read_available_memory() {
  const auto host = available_of_host(), group = available_of_group();
  if (host && group) return std::min(*host, *group);
  return host ? host : group;
}

HostMemory parse_process_status(const std::string& status) {
  HostMemory memory;
  std::istringstream lines(status);
  std::string line;
  while (std::getline(lines, line)) {
    std::istringstream words(line);
    std::string key;
    int64_t kilobytes = 0;
    if (!(words >> key >> kilobytes)) continue;
    if (key == "RssAnon:") memory.anonymous = kilobytes * 1024;
    if (key == "RssFile:") memory.file = kilobytes * 1024;
    if (key == "RssShmem:") memory.shared = kilobytes * 1024;
    if (key == "VmRSS:") memory.resident = kilobytes * 1024;
    if (key == "VmHWM:") memory.peak = kilobytes * 1024;
  }
  return memory;
}

std::optional<HostMemory> read_host_memory() {
  std::ifstream in("/proc/self/status");
  if (!in) return std::nullopt;
  return parse_process_status({std::istreambuf_iterator<char>(in), {}});
}

}  // namespace dslaunch::runtime
