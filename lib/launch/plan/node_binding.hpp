// What an agent determines on its own host once it knows the job: that the job's directory exists, and where each rank
// runs.
#pragma once
#include <vector>

#include "launch/channel/message.hpp"
#include "launch/plan/binding.hpp"

namespace dslaunch::launch {

// The job's directory must exist on this host: throws UserError(66).
void check_working_dir(const JobDescription& job);

// One binding per rank, in the order of the ranks. Inspects this machine; throws as plan_binding and
// check_binding_environment do.
std::vector<RankBinding> bind_ranks(const JobDescription& job);

}  // namespace dslaunch::launch
