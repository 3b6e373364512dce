// The commands of dsworker, one source file each. Each reads its options, executes the command, returns the exit code
// and throws errors.
#pragma once
#include <string>
#include <vector>

namespace dslaunch::worker {

// `arguments`: the words after the command.
int train_command(const std::vector<std::string>& arguments);
int infer_command(const std::vector<std::string>& arguments);
int serve_command(const std::vector<std::string>& arguments);
int consolidate_command(const std::vector<std::string>& arguments);
int import_command(const std::vector<std::string>& arguments);
int bench_command(const std::vector<std::string>& arguments);
int plan_command(const std::vector<std::string>& arguments);

// Executes the command that `words`, argv without the program's name, begin with, or prints help.
int dispatch(const std::vector<std::string>& words);

}  // namespace dslaunch::worker
