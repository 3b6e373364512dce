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
// Throws UserError 69 if such a line says that memory was refused, a device's or the host's: in a graph the type of the
// error is lost. `during` says of what ("forward on Long[4, 16]").
void throw_if_out_of_memory(const std::string& cause, const std::string& during);

}  // namespace dslaunch::runtime
