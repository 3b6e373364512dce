#include "runtime/data/prefetcher.hpp"

#include <catch2/catch.hpp>
#include <system_error>

#include "support/refused_threads.hpp"

using namespace dslaunch;
using namespace dslaunch::runtime;

TEST_CASE("a worker thread that the system refuses is told, and those before it have ended",
          "[runtime][data][prefetcher]") {
  RefusedThreads after(2);
  const auto no_plan = [] { return std::optional<MicroBatchPlan>(); };
  CHECK_THROWS_AS(Prefetcher(no_plan, BatchAssembler(nullptr, {}, {}), 4, 4), std::system_error);
}
