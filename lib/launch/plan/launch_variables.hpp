// The variables that the launch itself sets for its ranks: what another launch left of them is taken away, and nobody
// else can set them. Pure.
#pragma once
#include <map>
#include <string>

namespace dslaunch::launch {

// What takes the place of a value of one's own for this variable, as the end of a sentence; empty: it is the user's to
// set. `gpu_ranks`: the ranks get devices, and with them CUDA_VISIBLE_DEVICES.
std::string instead_of_setting(const std::string& name, bool gpu_ranks);

// Takes out of an inherited environment what another launcher, or a job around this one, has set for its own ranks.
void remove_launch_variables(std::map<std::string, std::string>& env);

}  // namespace dslaunch::launch
