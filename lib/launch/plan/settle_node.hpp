// What an agent settles on its own host once it knows the job: that its folder is there, and where each rank
// runs.
#pragma once
#include <vector>

#include "launch/channel/message.hpp"
#include "launch/plan/binding.hpp"

namespace dslaunch::launch {

// The job's folder must exist on this host: throws UserError(66).
void check_folder(const JobDescription& job);

// One binding a rank, in their order. Looks at this machine; throws as plan_binding and check_binding_environment do.
std::vector<RankBinding> bind_ranks(const JobDescription& job);

}  // namespace dslaunch::launch
