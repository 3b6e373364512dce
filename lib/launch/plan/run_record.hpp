// What a run directory says of its run (run.json): what continues it, wherever the directory is copied to, and what
// --resume auto without --run_dir looks for.
#pragma once
#include <cstdint>
#include <optional>
#include <string>

#include "launch/records/start_command.hpp"

namespace dslaunch::launch {

inline constexpr char kRunRecord[] = "run.json";

struct RunRecord {
  std::string job_id;
  int64_t started = 0;             // seconds since 1970
  uint64_t model = 0, config = 0;  // model_fingerprint(), config::fingerprint()
  std::string name;                // --name; empty: none
  StartCommand start;              // read back: without values of --env

  // The name of all jobs of the run: --name, else the id of the first one.
  const std::string& label() const { return name.empty() ? job_id : name; }
};

// Replaces the file, a link too. The values of --env are left out. Throws UserError(73) when it cannot be written.
void write_run_record(const std::string& run_dir, const RunRecord& record);
// Empty: there is none, or it cannot be read.
std::optional<RunRecord> read_run_record(const std::string& run_dir);

// The newest run directory in `root` with this model and this config that no job has locked, and that has a checkpoint
// or no records yet. Empty: there is none.
std::optional<std::string> find_run_to_resume(const std::string& root, uint64_t model, uint64_t config);

}  // namespace dslaunch::launch
