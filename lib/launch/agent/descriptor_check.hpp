// Checks that this process's limit of open files suffices for a node's part of a job, before any rank starts: later, a
// lack of descriptors shows as a rank without output, or one that waits for a store that cannot answer.
#pragma once
#include <cstddef>

#include "launch/channel/message.hpp"

namespace dslaunch::launch {

// The most descriptors that the agent will open beyond those open now.
size_t descriptors_needed(const JobDescription& job);

// Throws UserError(69) with both numbers.
void check_descriptors(const JobDescription& job);

}  // namespace dslaunch::launch
