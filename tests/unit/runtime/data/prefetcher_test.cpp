#include "runtime/data/prefetcher.hpp"

#include <catch2/catch.hpp>
#include <new>
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

TEST_CASE("a plan that fails is told in its place", "[runtime][data][prefetcher]") {
  const auto too_large = []() -> std::optional<MicroBatchPlan> { throw std::bad_alloc(); };
  for (const int64_t num_workers : {0, 2}) {
    Prefetcher prefetcher(too_large, BatchAssembler(nullptr, {}, {}), num_workers, 4);
    CHECK_THROWS_AS(prefetcher.next(), std::bad_alloc);
  }
}
