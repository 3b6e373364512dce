// Where the checkpoints of a run are, for a user who names its run directory. Any thread.
#pragma once
#include <cstdint>
#include <optional>
#include <string>

namespace dslaunch {

// The file in a run directory that records the run's settings.
inline constexpr char kResolvedConfigName[] = "config.resolved.json";

// The directory of checkpoints of the run in `run_dir`: what its recorded config names, else run_dir/checkpoints. Empty
// when `run_dir` is not the directory of a run, or holds checkpoints itself.
std::string checkpoints_of_run(const std::string& run_dir);

// The best checkpoint of a directory of checkpoints, as its file `best` names it (docs/checkpoint_format.md); empty:
// the file is missing, or what it names is gone.
std::string best_checkpoint(const std::string& directory);

// The step that the run continues from: of the complete checkpoint that `latest` names, else of the newest complete
// one, as far as this host sees. Empty: the run has saved nothing.
std::optional<int64_t> newest_run_checkpoint(const std::string& run_dir);

// The newest checkpoint that has a manifest, as `latest` names it, in a directory of checkpoints or of a run; a
// checkpoint itself. Empty: this host sees none.
std::string newest_checkpoint(const std::string& path);

}  // namespace dslaunch
