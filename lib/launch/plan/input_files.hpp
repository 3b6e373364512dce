// The files that a run reads, looked at before it changes anything: a slip in a path is not to cost the run that
// --overwrite discards. What the ranks would say of them, in their words (base/input_file.hpp, base/model_archive.hpp).
#pragma once
#include <string>

#include "config/job_config.hpp"

namespace dslaunch::launch {

// The model, as far as it shows from outside. Throws UserError: 65 for what is no TorchScript, 66 for what cannot be
// read.
void check_model_archive(const std::string& path);

// Training and evaluation data and the file of a loss, on the machine of some of the ranks; relative paths are those
// of `cwd`. Throws UserError as above. What only the reading of a file's content shows is left to the ranks.
void check_named_files(const config::JobConfig& config, const std::string& cwd);

}  // namespace dslaunch::launch
