// CPU lists as the kernel, numactl and DeepSpeed write them: "0-3,8". Pure.
#pragma once
#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.hpp"

namespace dslaunch::launch {

// No kernel numbers its CPUs higher; a larger number is a typing error.
constexpr int kHighestCpu = 8191;

struct CpuListError {
  std::string message;
  size_t offset = 0;  // in the text
};

// Returns the CPUs, ascending. Items must ascend and must not overlap; no spaces. An empty text is an empty list.
Result<std::vector<int>, CpuListError> read_cpu_list(std::string_view text);

// The shortest text for ascending numbers: "0-3,8".
std::string cpu_list_text(const std::vector<int>& cpus);

}  // namespace dslaunch::launch
