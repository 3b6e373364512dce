// CPU lists as the kernel, numactl and DeepSpeed write them: "0-3,8". Pure.
#pragma once
#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace dslaunch::launch {

// No kernel numbers its CPUs higher; a larger number is a typing error.
constexpr int kHighestCpu = 8191;

struct CpuListReading {
  std::vector<int> cpus;    // ascending
  std::string error;        // empty on success
  size_t error_offset = 0;  // offset of the error in the text
};

// Items must ascend and must not overlap; no spaces. An empty text is an empty list.
CpuListReading read_cpu_list(std::string_view text);

// The shortest text for ascending numbers: "0-3,8".
std::string cpu_list_text(const std::vector<int>& cpus);

}  // namespace dslaunch::launch
