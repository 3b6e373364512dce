#include "runtime/engine/plan/measure_activations.hpp"

#include <catch2/catch.hpp>

using namespace dslaunch::runtime::engine::plan;

TEST_CASE("the activations of a step are the most of forward and of the beginning of backward",
          "[runtime][engine][plan]") {
  // Logits of 300 bytes are saved; their gradient is as large; the gradients of all parameters are small.
  CHECK(activation_bytes({.saved_bytes = 1000, .forward_peak = 1100, .backward_peak = 1320, .gradient_bytes = 200}) ==
        1120);
  CHECK(activation_bytes({.saved_bytes = 1000, .forward_peak = 1400, .backward_peak = 1320, .gradient_bytes = 200}) ==
        1400);
  // Gradients are nearly all of the peak.
  CHECK(activation_bytes({.saved_bytes = 50, .forward_peak = 60, .backward_peak = 1020, .gradient_bytes = 1000}) == 60);
}
