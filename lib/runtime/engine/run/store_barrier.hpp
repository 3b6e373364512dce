// Barriers of all ranks through the store: at an event that the first step did not have (ShardingOptions::meet), and at
// the end of a run that all ranks have reached.
#pragma once
#include <chrono>
#include <cstdint>
#include <string>

#include "comm/watchdog.hpp"
#include "rendezvous/store.hpp"

namespace dslaunch::runtime::engine::run {

// Returns when all `world_size` ranks have reached the event in this step. The wait is slightly shorter than `limit`,
// the timeout of the collective in which ranks without this event are waiting, so that a rank that is alone at the
// event reports why before those ranks time out. Throws UserError(65), naming the missing ranks, or the verdict of
// `watch` (may be null) if it has one.
void store_barrier(rendezvous::Store& store, int world_size, int64_t step, const std::string& event,
                   std::chrono::milliseconds limit, comm::Watchdog* watch);

// All ranks end at this step. A rank that exited early would abort the other ranks' remaining work of this step, on
// rank 0 before the step's row is written. Waits at most ten seconds: a missing rank reports its own error.
void store_barrier_at_end(rendezvous::Store& store, int world_size, int64_t step);

}  // namespace dslaunch::runtime::engine::run
