// Does this process's limit of open files suffice for a node's part of a job? Asked before any rank starts: in the
// middle of a job the lack shows as a rank without its output, or one that waits for a store that cannot answer.
#pragma once
#include <cstddef>

#include "launch/channel/message.hpp"

namespace dslaunch::launch {

// What the agent will have open beyond what it has now, at most.
size_t descriptors_needed(const JobDescription& job);

// Throws UserError(69) with both numbers.
void check_descriptors(const JobDescription& job);

}  // namespace dslaunch::launch
