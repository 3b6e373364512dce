// What a run directory records of its run, read back for the report: curves, starts and ends, checkpoints, the ranks'
// times, config and environment. A file that is missing or damaged costs its part of the report and gives a note.
#pragma once
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "launch/report/curves.hpp"

namespace dslaunch::launch {

// From the start of the ranks to their end. Times are seconds since 1970.
struct RunAttempt {
  double began = 0;
  std::optional<double> ended;        // empty: it runs, or its end was not recorded
  std::optional<int64_t> first_step;  // steps done when it began; empty: it did not get as far
  std::optional<int64_t> last_step;   // steps done when it ended
  std::optional<int> exit_code;       // empty: not recorded
  std::string cause;                  // one line; empty: it succeeded, or no cause is recorded
  bool restarts = false;              // another attempt follows it
  int world_size = 0;                 // 0: not recorded

  // Ended on request: the codes of a scheduler's request and of Ctrl-C.
  bool was_stopped() const { return exit_code == 75 || exit_code == 130; }
  bool has_failed() const { return exit_code.value_or(0) != 0 && !was_stopped(); }
};

struct SavedCheckpoint {
  double time = 0;
  int64_t step = 0;
};

// One figure of the ranks over all samples of the run; by rank.
struct RankFigure {
  std::string key;                            // "step_ms"
  std::vector<double> mean, lowest, highest;  // NaN: no sample of the rank
  std::vector<Point> spread;                  // highest less lowest of the ranks, over the step of the sample
};

// A text that the model has written at an evaluation.
struct SampleText {
  int64_t step = 0;
  std::string prompt, text, reference;  // without a reference: empty
};

struct RunHistory {
  std::string name;  // as the reader of the report knows it
  std::string dir;
  std::string job_id;  // empty: not recorded
  bool is_running = false;
  std::string state;  // "running", "finished", "failed (exit code 1)"
  Curves curves;
  std::vector<RunAttempt> attempts;          // in order of time
  std::vector<SavedCheckpoint> checkpoints;  // in order of steps
  std::vector<RankFigure> ranks;
  std::vector<SampleText> samples;                               // in order of steps
  int64_t total_steps = 0;                                       // 0: not recorded
  std::vector<std::pair<std::string, std::string>> config;       // dotted key, value as JSON
  std::vector<std::pair<std::string, std::string>> environment;  // of the newest attempt
  std::vector<std::string> traces;                               // names of files
  std::vector<std::string> notes;                                // what is missing or damaged

  std::optional<double> last_step() const;
};

// Whether the directory has any of the files that a run, or a job with --run_dir, writes.
bool is_run_directory(const std::string& dir);

RunHistory read_run_history(const std::string& dir);

}  // namespace dslaunch::launch
