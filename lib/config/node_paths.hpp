// Paths of a job file that every node resolves by itself, because they name its own disks: nvme_path, init.from.
#pragma once
#include <functional>
#include <optional>
#include <string>
#include <string_view>

#include "base/result.hpp"
#include "config/job_config.hpp"

namespace dslaunch::config {

// The value of a variable of the environment; empty: it is not set.
using FindVariable = std::function<std::optional<std::string>(const std::string& name)>;

// Of this process. Must not run while another thread changes the environment.
std::optional<std::string> variable_of_this_process(const std::string& name);

// Replaces ~ at the start, alone or before a slash, with $HOME, and $NAME and ${NAME} anywhere with the variable. Other
// dollar signs and tildes are text. Fails if a variable is not set or is empty.
Result<std::string> expand_path(std::string_view path, const FindVariable& find = variable_of_this_process);

// The same for the paths of a job file that are used: of sections whose device is kFile. Throws UserError (65) that
// names key, path and variable.
void expand_node_paths(JobConfig& config, const FindVariable& find = variable_of_this_process);

}  // namespace dslaunch::config
