// fio's rate for the file of a measurement, where fio is installed.
#pragma once
#include <string>

#include "base/result.hpp"
#include "file_io/sweep.hpp"

namespace dslaunch::launcher {

struct FioJob {
  std::string path;        // of a file that exists
  int64_t bytes = 0;       // that fio may read and write, from its beginning
  bool direct = true;      // with O_DIRECT
  bool uses_uring = true;  // else pread and pwrite, by as many threads as blocks are in flight
  bool is_write = false;
  file_io::Setting setting;
  int seconds = 1;
};

// fio's words for the job, `program` first. Pure.
std::vector<std::string> fio_command(const FioJob& job);
// Runs fio. Bytes per second; fails with a clause ("it is not installed"). From a thread that lives until it returns.
Result<double> measure_with_fio(const FioJob& job);

}  // namespace dslaunch::launcher
