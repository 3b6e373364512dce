#include "runtime/state/step_streams.hpp"

#include <catch2/catch.hpp>

using namespace dslaunch::runtime;

TEST_CASE("on the host work for a side stream runs at once, and nothing is pending", "[runtime][step_streams]") {
  StepStreams streams(c10::kCPU, /*overlaps=*/true);
  CHECK_FALSE(streams.overlaps());
  bool has_run = false;
  const StreamMark end = streams.run(SideStream::kReduction, [&] { has_run = true; });
  CHECK(has_run);
  CHECK_FALSE(streams.is_pending(end));
  CHECK_FALSE(streams.is_pending(streams.mark()));
  streams.wait(end);
  streams.join();
  streams.discard();
}
