// The line of an exception's text that says what went wrong.
#pragma once
#include <exception>
#include <string>

namespace dslaunch::runtime {

// Of what LibTorch or TorchScript threw. TorchScript puts the cause last, after the traceback of the script and what of
// its source follows the place; a plain operator error puts it first. What a model itself raises keeps its kind
// ("ValueError: ...").
std::string cause_of(const std::exception& error);
// What is wrong with the source in a file, and the line of it that is marked as the place.
std::string parse_error_in(const std::string& text);

}  // namespace dslaunch::runtime
