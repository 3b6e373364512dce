// The host memory used by this process, and the memory of the host, in bytes, as the kernel counts it. Any thread.
#pragma once
#include <cstdint>
#include <optional>
#include <string>

namespace dslaunch::runtime {

struct HostMemory {
  int64_t anonymous = 0;  // RssAnon: the process's own pages
  int64_t file = 0;       // RssFile: mapped files, shared among the ranks of a host
  int64_t shared = 0;     // RssShmem
  int64_t resident = 0;   // VmRSS
  int64_t peak = 0;       // VmHWM: the largest resident so far
};

struct SystemMemory {  // of the whole host
  int64_t total = 0, available = 0;
};

// Empty when /proc cannot be read.
std::optional<HostMemory> read_host_memory();
// Zeros when /proc cannot be read.
SystemMemory read_system_memory();
// The memory that this process may still allocate: the smaller of the host's available memory and the rest of its
// cgroup limit. Empty when neither can be read.
std::optional<int64_t> read_available_memory();
// Parses the text of /proc/PID/status and /proc/meminfo; missing lines count as 0.
HostMemory parse_process_status(const std::string& status);
SystemMemory parse_memory_info(const std::string& text);

}  // namespace dslaunch::runtime
