#include "runtime/telemetry/host_memory.hpp"

#include <algorithm>
#include <fstream>
#include <iterator>
#include <map>
#include <sstream>

namespace dslaunch::runtime {
namespace {

// The first number in a file; empty for "max" or if there is no file.
std::optional<int64_t> read_number(const char* path) {
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
