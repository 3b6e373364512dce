// Checks a run's input files before the run changes anything: a wrong path must not cost the user the earlier run that
// --overwrite discards. The checks give the same messages as the ranks would (base/input_file.hpp,
// base/model_archive.hpp).
#pragma once
#include <string>

#include "config/job_config.hpp"

namespace dslaunch::launch {

// Checks the model file as far as possible without loading it. Throws UserError: 65 if the file is not TorchScript, 66
// if it cannot be read.
void check_model_archive(const std::string& path);

// Checks training and evaluation data and the loss file on a machine that runs some of the ranks; relative paths are
// relative to `cwd`. Throws UserError as above. Errors that only reading a file's content reveals are left to the
// ranks.
void check_named_files(const config::JobConfig& config, const std::string& cwd);

}  // namespace dslaunch::launch
