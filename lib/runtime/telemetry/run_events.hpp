// events.jsonl of a run: its starts, checkpoints and ends with their times, for reports. One line each, as
// docs/monitoring.md lists them. One thread.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "runtime/telemetry/append_file.hpp"

namespace dslaunch::runtime {

struct RunStart {
  int64_t step = 0;  // steps done before
  int64_t total_steps = 0;
  std::vector<std::pair<std::string, std::string>> environment;
};

// Operating system, processor, memory and GPUs of this host, as /proc shows them; what it does not show is left out.
std::vector<std::pair<std::string, std::string>> describe_machine();

class RunEvents {
 public:
  // Appends. A file that cannot be written costs the events, with one warning, and never the run.
  explicit RunEvents(const std::string& path);

  void start(const RunStart& start);
  // `time`: when the save began.
  void checkpoint(int64_t step, double time);
  void end(int64_t step, bool stopped);

 private:
  void write(const std::string& line);

  const std::string path_;
  std::optional<AppendFile> file_;  // empty: it could not be written
};

}  // namespace dslaunch::runtime
