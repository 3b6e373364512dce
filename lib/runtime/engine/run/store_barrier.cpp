#include "runtime/engine/run/store_barrier.hpp"

#include <algorithm>
#include <optional>

#include "base/error.hpp"
#include "base/format.hpp"
#include "base/result.hpp"

namespace dslaunch::runtime::engine::run {
namespace {

constexpr std::chrono::milliseconds kBetweenLooks{500};
constexpr const char* kAdvice =
    "At ZeRO stages 2 and 3 the control flow of all ranks must differ in the first step already if it depends on a "
    "rank's data; or use stage 0 or 1";

// The error, when not all ranks have arrived, names the missing ranks.
Result<> wait_for_all(rendezvous::Store& store, int world_size, const std::string& event,
                      std::chrono::milliseconds timeout) {
  try {
    store.barrier("units/" + event, world_size, Deadline::after(timeout));
    return {};
  } catch (const TimeoutError& error) {
    return Failure{error.what()};
  }
}

}  // namespace

void store_barrier(rendezvous::Store& store, int world_size, int64_t step, const std::string& event,
                   std::chrono::milliseconds limit, comm::Watchdog* watch) {
  const auto what = fmt::format("the {} at step {} (which the first step did not have)", event, step);
  std::optional<comm::Watchdog::BarrierWait> waiting;
  if (watch) waiting.emplace(*watch, event, what, kAdvice);
  const auto deadline = Deadline::after(limit * 5 / 6);
  for (;;) {
    const Result<> arrived = wait_for_all(store, world_size, event, std::min(kBetweenLooks, deadline.left()));
    if (arrived.ok()) return;
    if (const auto verdict = watch ? watch->verdict() : std::nullopt) throw *verdict;
    if (!deadline.passed()) continue;
    throw UserError(ExitCode::kBadInput,
                    fmt::format("this rank reached {} and timed out waiting for the other ranks ({}). {}", what,
                                arrived.error(), kAdvice));
  }
}

void store_barrier_before_end(rendezvous::Store& store, int world_size, const std::string& event,
                              std::chrono::milliseconds limit) {
  try {
    store.barrier(event, world_size, Deadline::after(limit));
  } catch (const Error&) {
    // This rank has its own error in any case.
  }
}

}  // namespace dslaunch::runtime::engine::run
