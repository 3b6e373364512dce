// All ranks at an event that the first step did not have (ShardingOptions::meet).
#pragma once
#include <chrono>
#include <cstdint>
#include <string>

#include "comm/hang_watch.hpp"
#include "rendezvous/store.hpp"

namespace dslaunch::runtime {

// Returns when all `world_size` ranks are at the event in this step. The wait is a little shorter than `limit`, that of
// a collective, in which the others are where they do not come: who is alone says why before they give up. Throws
// UserError(65), naming those that are not there, or the verdict of `watch` (may be null) when that has one.
void meet_all(rendezvous::Store& store, int world_size, int64_t step, const std::string& event,
              std::chrono::milliseconds limit, comm::HangWatch* watch);

}  // namespace dslaunch::runtime
