// launcher.jsonl in the directory of a run: what only the launcher knows of it, for reports: attempts, how they ended,
// and samples of all ranks. One line each, as docs/monitoring.md lists them. An `exec` and an evaluation have none. One
// thread; the file thread writes.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "launch/event_loop/file_thread.hpp"
#include "launch/plan/launch_plan.hpp"
#include "launch/supervisor/job_report.hpp"

namespace dslaunch::launch {

// Of one rank; what it does not report is empty.
struct RankSampleLine {
  std::optional<int64_t> step;
  std::optional<double> step_ms, busy_ms;  // busy: forward and backward
  std::optional<int64_t> gpu_mem_bytes, host_mem_bytes;
  std::optional<bool> waiting;  // for other ranks
};

class LauncherEvents {
 public:
  // `files` outlives this.
  explicit LauncherEvents(FileThread& files) : files_(files) {}

  static bool records(const LaunchPlan& plan);

  void launched(const LaunchPlan& plan);
  // `last_step`: the last one in the run's metrics; empty: none.
  void ended(const LaunchPlan& plan, const JobReport& report, bool restarts, std::optional<int64_t> last_step,
             double when);
  // By rank.
  void sampled(const LaunchPlan& plan, const std::vector<RankSampleLine>& ranks);

 private:
  void append(const LaunchPlan& plan, const std::string& line);

  FileThread& files_;
};

}  // namespace dslaunch::launch
