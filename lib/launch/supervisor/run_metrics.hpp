// The end of a run's metrics.jsonl, as far as this machine can see it. The file may be on a file server that does not
// answer: `reads` reads it, and its owner waits for 2 s at most.
#pragma once
#include <cstdint>
#include <optional>
#include <string>

#include "launch/event_loop/file_thread.hpp"

namespace dslaunch::launch {

// The last line of RUN_DIR/metrics.jsonl without its newline; "" if there is none, or it was not read in time.
std::string last_metrics_line(FileThread& reads, const std::string& run_dir);

// The same without the lines that `--eval_only` has added, which may be of any checkpoint.
std::string last_training_line(FileThread& reads, const std::string& run_dir);

// The step in that line; empty if it has none.
std::optional<int64_t> last_recorded_step(FileThread& reads, const std::string& run_dir);

}  // namespace dslaunch::launch
