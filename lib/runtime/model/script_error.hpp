// The line of an exception's text that says what went wrong.
#pragma once
#include <string>

namespace dslaunch::runtime {

// TorchScript puts the cause last, after the traceback of the script and what of its source follows the place; a plain
// operator error puts it first. What a model itself raises keeps its kind ("ValueError: ...").
std::string cause_in(std::string text);

}  // namespace dslaunch::runtime
