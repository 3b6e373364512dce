// The line of an exception's text that says what went wrong.
#pragma once
#include <exception>
#include <string>

namespace dslaunch::runtime::model::file {

// For an exception from LibTorch or TorchScript. TorchScript puts the cause last, after the traceback of the script and
// the source that follows the location; a plain operator error puts it first. Exceptions that a model itself raises
// keep their type ("ValueError: ...").
std::string cause_of(const std::exception& error);
// The error in the source of a file, and the source line that is marked as its location.
std::string parse_error_in(const std::string& text);

}  // namespace dslaunch::runtime::model::file
