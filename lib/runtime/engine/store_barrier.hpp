// Meetings of all ranks through the store: at an event that the first step did not have (ShardingOptions::meet), and
// before an end that all have come to.
#pragma once
#include <chrono>
#include <cstdint>
#include <string>

#include "comm/watchdog.hpp"
#include "rendezvous/store.hpp"

namespace dslaunch::runtime {

// Returns when all `world_size` ranks are at the event in this step. The wait is a little shorter than `limit`, that of
// a collective, in which the others are where they do not come: who is alone says why before they give up. Throws
// UserError(65), naming those that are not there, or the verdict of `watch` (may be null) when that has one.
void store_barrier(rendezvous::Store& store, int world_size, int64_t step, const std::string& event,
                   std::chrono::milliseconds limit, comm::Watchdog* watch);

// All ranks end at this step. One that left at once would end what the others are still in of it, and rank 0 without
// the step's row. Waits ten seconds at most: whoever does not come has its own story.
void store_barrier_at_end(rendezvous::Store& store, int world_size, int64_t step);

}  // namespace dslaunch::runtime
