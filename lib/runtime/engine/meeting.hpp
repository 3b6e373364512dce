// All ranks at an event that the first step did not have (ShardingOptions::meet).
#pragma once
#include <chrono>
#include <cstdint>
#include <string>

#include "rendezvous/store.hpp"

namespace dslaunch::runtime {

// Others may still be on their way: a batch that is read from cold storage takes its time. The wait is a little shorter
// than that of a collective, in which they are where they do not come: who is alone says why before they give up.
struct MeetingPatience {
  std::chrono::milliseconds quiet = std::chrono::minutes(1);  // then a warning says who is waited for
  std::chrono::milliseconds more = std::chrono::minutes(24);
};

// Returns when all `world_size` ranks are at the event in this step. Throws UserError(65), naming those that are not.
void meet_all(rendezvous::Store& store, int world_size, int64_t step, const std::string& event,
              const MeetingPatience& patience = {});

}  // namespace dslaunch::runtime
