// What can be said of a model's path without reading it as a model: the slips that every newcomer makes.
#pragma once
#include <string>

namespace dslaunch::launch {

// Throws UserError: 64 for a Python file (exec is meant), 65 for a kind of file that cannot be a model, 66 for one that
void check_model_file(const std::string& path);

}  // namespace dslaunch::launch
