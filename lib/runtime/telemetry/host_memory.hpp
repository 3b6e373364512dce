// What this process occupies of the host's memory, and what the host has, in bytes, as the kernel counts it. Any
// thread.
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

// Nothing where /proc cannot be read.
std::optional<HostMemory> read_host_memory();
// Zeros where /proc cannot be read.
SystemMemory read_system_memory();
// What this process may still take: the smaller of the host's available memory and what its control group leaves.
// Nothing where neither can be read.
std::optional<int64_t> read_available_memory();
// From the text of /proc/PID/status and /proc/meminfo; lines that are missing count 0.
HostMemory parse_process_status(const std::string& status);
SystemMemory parse_memory_info(const std::string& text);

}  // namespace dslaunch::runtime
