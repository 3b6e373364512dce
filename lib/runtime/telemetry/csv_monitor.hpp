// "csv_monitor": one file per event name, with rows of step and value, as Python's csv module writes them. Files are
// appended to; every process writes its header once, so a resumed run has a second one, as with DeepSpeed. One thread.
#pragma once
#include <map>
#include <string>

#include "runtime/telemetry/append_file.hpp"
#include "runtime/telemetry/monitor.hpp"

namespace dslaunch::runtime {

class CsvMonitor final : public Monitor {
 public:
  explicit CsvMonitor(std::string directory);
  void write(std::span<const ScalarEvent> events) override;

 private:
  AppendFile& file_of(const std::string& event);

  const std::string directory_;
  std::map<std::string, AppendFile> files_;  // by event name
};

}  // namespace dslaunch::runtime
