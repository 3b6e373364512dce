// Where LibTorch is on this machine, for programs that were built elsewhere.
#pragma once
#include <optional>
#include <string>
#include <vector>

namespace dslaunch::launch {

// Python environments that may hold PyTorch, the one that counts first: the active one (VIRTUAL_ENV, CONDA_PREFIX),
// then the pinned one of scripts/setup. Only those that exist.
std::vector<std::string> python_environments();

// The LD_LIBRARY_PATH with which dsworker finds LibTorch, ahead of `inherited`: the directory that DSLAUNCH_TORCH_LIB
// names, else, unless dsworker finds LibTorch by itself, that of the first Python environment with PyTorch of our
// version. Nothing when there is nothing to add. `is_copied`: dsworker will run as a copy somewhere else, where paths
// relative to it lead nowhere (--push). Throws UserError(66) when DSLAUNCH_TORCH_LIB has no LibTorch.
std::optional<std::string> torch_library_path(const std::string& inherited, bool is_copied = false);

}  // namespace dslaunch::launch
