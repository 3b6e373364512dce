// Barriers of all ranks through the store: at an event that the first step did not have (ShardingOptions::meet), and
// before an end that all ranks have reached.
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

// All ranks end with the error that `event` names. A rank that exited early would abort what others still have to do,
// and these would report its end instead. A rank that does not come within `limit` has an error of its own.
void store_barrier_before_end(rendezvous::Store& store, int world_size, const std::string& event,
                              std::chrono::milliseconds limit);

}  // namespace dslaunch::runtime::engine::run
