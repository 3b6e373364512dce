// The second pass of a call sees what its first saw, on whatever thread it runs.
#include "runtime/model/call_surroundings.hpp"

#include <ATen/ATen.h>
#include <ATen/autocast_mode.h>
#include <torch/csrc/jit/runtime/graph_executor.h>

#include <catch2/catch.hpp>
#include <thread>

using namespace dslaunch::runtime;

TEST_CASE("another thread has the modes and random numbers of the first pass, and then its own again",
          "[runtime][call_surroundings]") {
  const torch::jit::GraphOptimizerEnabledGuard not_optimised(false);
  at::autocast::set_autocast_enabled(at::kCPU, true);
  at::manual_seed(5);
  const std::vector<ParameterPlace> no_state;
  CallSurroundings then(no_state, at::kCPU);
  const at::Tensor first = at::rand({3});
  at::autocast::set_autocast_enabled(at::kCPU, false);

  bool before = false, inside = true, after = false, autocast_inside = false, autocast_after = true;
  at::Tensor again;
  std::thread([&] {
    before = torch::jit::getGraphExecutorOptimize();
    {
      const CallSurroundings::Return as_then(then);
      inside = torch::jit::getGraphExecutorOptimize();
      autocast_inside = at::autocast::is_autocast_enabled(at::kCPU);
      again = at::rand({3});
    }
    after = torch::jit::getGraphExecutorOptimize();
    autocast_after = at::autocast::is_autocast_enabled(at::kCPU);
  }).join();

  CHECK(before);  // a new thread's own
  CHECK_FALSE(inside);
  CHECK(after);
  CHECK(autocast_inside);
  CHECK_FALSE(autocast_after);
  CHECK(at::equal(first, again));
}
