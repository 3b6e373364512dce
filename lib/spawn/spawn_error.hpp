// Explains why an existing program could not be started. Reads the file; any thread.
#pragma once
#include <string>

#include "base/result.hpp"

namespace dslaunch::spawn {

// Whether the interpreter that a file requires (a script's #! line, a binary's dynamic loader) exists; the error names
// it and says what helps. For an ENOENT from execve about a file that exists.
Result<> check_interpreter(const std::string& file);

// Why execve does not accept a file as a program (ENOEXEC): built for another CPU, empty, a script without #!.
std::string wrong_format(const std::string& file);

}  // namespace dslaunch::spawn
