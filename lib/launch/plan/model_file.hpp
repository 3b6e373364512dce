// Checks of a model's path without parsing the model: they catch common mistakes of new users.
#pragma once
#include <string>
#include <vector>

namespace dslaunch::launch {

// Throws UserError(64) when the extension is that of a program. `line`: what to type instead, as "'dslaunch exec --
// python x.py'?"; empty: this with `path` alone.
void refuse_program(const std::string& path, const std::string& line = {});

// "--config" or "--data" by the extension of a file that a run takes with that option; empty: neither.
std::string option_of_file(const std::string& path);

// Throws UserError: 64 for a program or a config (another command or option is meant), 65 for a directory or another
// kind of file that cannot be a model, 66 for a file that does not exist or cannot be read.
void check_model_file(const std::string& path);

}  // namespace dslaunch::launch
