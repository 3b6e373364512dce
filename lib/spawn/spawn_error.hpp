// Explains why an existing program could not be started. Reads the file; any thread.
#pragma once
#include <string>

namespace dslaunch::spawn {

// The interpreter that a file requires (a script's #! line, a binary's dynamic loader), if that does not exist, with
// advice; empty: it exists, or none is required. For an ENOENT from execve about a file that exists.
std::string missing_interpreter(const std::string& file);

// Why execve does not accept a file as a program (ENOEXEC): built for another CPU, empty, a script without #!.
std::string wrong_format(const std::string& file);

}  // namespace dslaunch::spawn
