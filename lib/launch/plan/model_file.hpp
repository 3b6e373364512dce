// What can be said of a model's path without reading it as a model: the slips that every newcomer makes.
#pragma once
#include <string>
#include <vector>

namespace dslaunch::launch {

// Throws UserError(64) where the ending says that this is a program, with the command line that runs it, the words that
// stood in front of it and behind it included.
void refuse_program(const std::string& path, const std::vector<std::string>& options = {},
                    const std::vector<std::string>& arguments = {});

// Throws UserError: 64 for a program or a config (another command or option is meant), 65 for a folder or another kind
// of file that cannot be a model, 66 for a file that does not exist or cannot be read.
void check_model_file(const std::string& path);

}  // namespace dslaunch::launch
