// What the start of a run changes in its run directory before the first step, and how that is taken back if no step is
// done: a run directory that holds a run keeps the record of the start that led to it, and one that this start has
// created is removed. One thread.
#pragma once
#include <optional>
#include <string>

#include "launch/plan/run_record.hpp"

namespace dslaunch::launch {

class RunStart {
 public:
  // Before the run directory is prepared: what it holds, of which `keeps_run` is false for --overwrite.
  void look_at(const std::string& run_dir, bool keeps_run);
  // The record of this start. `may_remove`: the directory may be removed if this start has created it and fails. Throws
  // UserError(73).
  void record(const RunRecord& record, bool may_remove);
  // What an evaluation does instead: it is not the run's start, and leaves its record.
  void record_nothing(const std::string& job_id, bool may_remove);

  // A step was done since look_at, or the run was continued from another step.
  bool has_step() const;
  // take_back() removes the directory, and moves its logs to the job's own.
  bool moves_logs() const;
  // The job has ended without success: takes the start back unless a step was done. Logs errors, throws nothing.
  void take_back();

 private:
  bool leaves_nothing() const;
  void remove_directory() const;

  std::string run_dir_, job_id_;
  bool is_created_ = false, is_recorded_ = false;
  std::optional<RunRecord> earlier_;
  std::string earlier_metrics_;  // their last line
};

}  // namespace dslaunch::launch
