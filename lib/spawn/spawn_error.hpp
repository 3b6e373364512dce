// Why a program that is there could not be started. Reads the file; any thread.
#pragma once
#include <string>

namespace dslaunch::spawn {

// The interpreter that a file asks for (a script's #! line, a binary's dynamic loader) when that does not exist, with
// what to do; empty: it is there, or none is asked for. For execve's ENOENT about a file that exists.
std::string missing_interpreter(const std::string& file);

// What is wrong with a file that execve takes for no program (ENOEXEC): another CPU's, empty, a script without #!.
std::string wrong_format(const std::string& file);

}  // namespace dslaunch::spawn
