// The directory that a run writes to, or that an `exec` names.
#pragma once
#include <string>

#include "base/directory_lock.hpp"

namespace dslaunch::launch {

enum class EarlierRun { kRefuse, kKeep, kDiscard };  // with neither option; --resume; --overwrite

// Does the directory hold a run: a step's metrics, a checkpoint or the record of an `exec`? The files of an attempt
// that never began do not count.
bool holds_run(const std::string& dir);

// Is there output of a rank in its logs? Empty logs come from a job that never began.
bool holds_logs(const std::string& dir);

// Throws UserError(73) when the directory cannot be used, or holds a run and `earlier` refuses that. Changes nothing.
void check_run_dir(const std::string& dir, EarlierRun earlier);

// Checks and creates the directory, locks it for the job for the lifetime of the returned lock (73 when a live job
// holds it), and deletes the earlier run's own files (nothing else in the directory) if requested.
[[nodiscard]] DirectoryLock prepare_run_dir(const std::string& dir, EarlierRun earlier, const std::string& job_id);

// For a directory that a start created and in which no step was done: moves its logs to `logs_to`/logs (empty: keeps a
// directory with logs) and removes the files of the start and the directory. False: the directory is still there, since
// it holds a run, or files of others.
bool remove_failed_start(const std::string& dir, const std::string& logs_to);

// An `exec` job as its record in the run directory (exec.json) names it.
struct ExecJob {
  std::string job_id;
  std::string slurm_job_id;  // empty: not under Slurm
};

// Did the same Slurm job, now requeued, write the logs in the directory, so that this job appends to them? Throws
// UserError(73) when the directory cannot be used, or holds another job's run and `overwrite` does not replace it.
// Changes nothing.
bool check_exec_dir(const std::string& dir, const ExecJob& job, bool overwrite);

// Checks, creates and locks the directory as prepare_run_dir does, removes an earlier job's logs if requested (files
// written by its program are kept) and records this job.
[[nodiscard]] DirectoryLock prepare_exec_dir(const std::string& dir, const ExecJob& job, bool overwrite);

// Call when no rank of the recorded job has started: removes the record, since the directory holds no run of that job.
void remove_exec_record(const std::string& dir);

}  // namespace dslaunch::launch
