#include "runtime/engine/step/capture_decision.hpp"

#include <catch2/catch.hpp>
#include <vector>

using namespace dslaunch;
using namespace dslaunch::runtime::engine::step;

namespace {

// The first forward is a third of the pass on both sides.
PassTiming even(double host_ms, double device_ms) {
  return {{host_ms / 3, device_ms / 3}, {host_ms, device_ms}};
}

bool pays(const std::vector<PassTiming>& of_ranks) {
  return decide_capture(of_ranks).pays;
}

}  // namespace

TEST_CASE("capture pays where the device is done about when the host has issued the pass", "[engine][capture]") {
  CHECK(pays({even(14.2, 14.6)}));
  CHECK(pays({even(9.1, 10)}));
  CHECK_FALSE(pays({even(8.9, 10)}));
  CHECK_FALSE(pays({even(20, 90)}));
}

TEST_CASE("a launch queue that is full does not make the host the slower one", "[engine][capture]") {
  // 20,000 kernels, of which the device accepts 1,000 ahead: at the end the host has waited for the device.
  CHECK_FALSE(pays({{{20, 32}, {95, 100}}}));
  // The host is the slower one in forward alone.
  CHECK_FALSE(pays({{{20, 21}, {40, 60}}}));
  CHECK(pays({{{20, 21}, {57, 60}}}));
}

TEST_CASE("the rank whose host is the slowest counts for all", "[engine][capture]") {
  const auto decision = decide_capture(std::vector{even(5, 10), even(9.5, 10), even(9.1, 10), even(3, 10)});
  CHECK(decision.pays);
  CHECK(decision.rank == 1);
  CHECK(decision.worst.pass.host_ms == 9.5);
  CHECK_FALSE(pays({even(5, 10), even(8, 10)}));
}

TEST_CASE("the pass that was disturbed least is the one that was issued fastest", "[engine][capture]") {
  CHECK(least_disturbed(std::vector{even(30, 31), even(12, 20), even(13, 19)}).pass.device_ms == 20);
}

TEST_CASE("passes without device time are not captured", "[engine][capture]") {
  CHECK_FALSE(pays({even(1, 0)}));
}

TEST_CASE("one line says what was measured and decided", "[engine][capture]") {
  const auto slow = decide_capture(std::vector{even(5, 10), even(14.26, 14.64)});
  CHECK(describe(slow, 2, {}) ==
        "graph_harvesting: the device waits for the host, which takes 14.3 of 14.6 ms to issue forward and backward "
        "(rank 1): steps are captured as a CUDA graph");
  const auto alone = decide_capture(std::vector{even(14.26, 14.64)});
  CHECK(describe(alone, 1, Failure{"the model prints"}) ==
        "graph_harvesting: the device waits for the host, which takes 14.3 of 14.6 ms to issue forward and backward; "
        "steps cannot be captured as a CUDA graph: the model prints");
  CHECK(describe(decide_capture(std::vector{even(60, 95.2)}), 1, Failure{""}) ==
        "graph_harvesting: the host takes 60.0 of 95.2 ms to issue forward and backward: steps are not captured");
}
