// The folder that a run writes into, or an `exec` that names one.
#pragma once
#include <string>

#include "base/folder_lock.hpp"

namespace dslaunch::launch {

enum class EarlierRun { kRefuse, kKeep, kDiscard };  // without an option; --resume; --overwrite

// Does the folder hold a run: a step's metrics, a checkpoint or the record of an `exec`? What an attempt that never
// began left is none.
bool holds_run(const std::string& folder);

// Throws UserError(73) when the folder holds a run that `earlier` refuses, or cannot be used. Changes nothing.
void check_run_folder(const std::string& folder, EarlierRun earlier);

// Checks, makes the folder, takes it for the job as long as the lock lives (73 when a living job has it), and discards
// the earlier run's own files (nothing else in the folder) where told to.
[[nodiscard]] FolderLock prepare_run_folder(const std::string& folder, EarlierRun earlier, const std::string& job_id);

// A job of `exec` as its record in the run directory (exec.json) names it.
struct ExecJob {
  std::string job_id;
  std::string slurm_job_id;  // empty: outside of Slurm
};

// Is this job, requeued by Slurm, the one whose logs are there, so that it appends to them? Throws UserError(73) when
// the directory holds another job's run and `overwrite` does not replace that, or cannot be used. Changes nothing.
bool check_exec_folder(const std::string& folder, const ExecJob& job, bool overwrite);

// Checks, makes and locks the directory as prepare_run_folder does, removes an earlier job's logs where told to (what
// its program has written is the program's) and puts this job on record.
[[nodiscard]] FolderLock prepare_exec_folder(const std::string& folder, const ExecJob& job, bool overwrite);

// No rank of the job that is on record has started: the directory holds no run of its.
void forget_exec(const std::string& folder);

}  // namespace dslaunch::launch
