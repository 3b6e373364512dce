// What `dslaunch bench io` has measured, as a text or a JSON document. Pure.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "file_io/sweep.hpp"

namespace dslaunch::launcher {

struct BenchIoReport {
  std::string directory;
  int64_t file_bytes = 0;
  bool uses_uring = false, uses_direct = false;
  std::vector<file_io::MeasuredSetting> sweep;  // not empty
  file_io::MeasuredSetting best;                // measured again, for longer
  std::optional<file_io::Rates> fio;            // with the best setting, on the same file
  std::string no_fio;                           // why there is none
  int num_cores = 1;
  double copy_rate = 0;            // bytes per second, of all cores
  std::vector<std::string> notes;  // what is slow here, or not used
};

std::string describe(const BenchIoReport& report, bool json);

}  // namespace dslaunch::launcher
