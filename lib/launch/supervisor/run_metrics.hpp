// The end of a run's metrics.jsonl, as far as this machine can see it. Reads a file, which may block. Any thread.
#pragma once
#include <cstdint>
#include <optional>
#include <string>

namespace dslaunch::launch {

// The last line of RUN_DIR/metrics.jsonl without its newline; "" if there is none.
std::string last_metrics_line(const std::string& run_dir);

// The step in that line; empty if it has none.
std::optional<int64_t> last_recorded_step(const std::string& run_dir);

}  // namespace dslaunch::launch
