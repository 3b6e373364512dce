#include "runtime/telemetry/host_memory.hpp"

#include <fstream>
#include <iterator>
#include <sstream>

namespace dslaunch::runtime {

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
