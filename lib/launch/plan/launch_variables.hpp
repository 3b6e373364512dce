// The variables that the launch itself sets for its ranks: values left by another launch are removed, and the user
// cannot set them. Pure.
#pragma once
#include <map>
#include <string>

namespace dslaunch::launch {

// What to use instead of setting this variable, as the end of a sentence; empty: the user may set it. `gpu_ranks`: the
// ranks get devices, and with them CUDA_VISIBLE_DEVICES.
std::string instead_of_setting(const std::string& name, bool gpu_ranks);

// Removes from an inherited environment the variables that another launcher, or an enclosing job, has set for its
// ranks.
void remove_launch_variables(std::map<std::string, std::string>& env);

}  // namespace dslaunch::launch
