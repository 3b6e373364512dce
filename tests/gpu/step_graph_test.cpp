// Graphs of steps of different shapes that share memory. Without a CUDA device it is skipped.
#include "runtime/engine/step/step_graph.hpp"

#include <ATen/ATen.h>
#include <c10/core/CachingDeviceAllocator.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include <catch2/catch.hpp>
#include <memory>
#include <vector>

#include "support/cuda_device.hpp"

using namespace dslaunch;
using namespace dslaunch::runtime::engine::setup;
using namespace dslaunch::runtime::engine::step;

namespace {

const at::Device kDevice(at::kCUDA, 0);
constexpr int64_t kWidth = 1024;

at::Tensor inputs(int64_t rows, double value) {
  return at::full({rows, kWidth}, value, at::TensorOptions().device(kDevice));
}

std::vector<MicroBatch> batch(int64_t rows, double value) {
  return {{{inputs(rows, value)}, {at::zeros({1}, at::TensorOptions().device(kDevice))}, 0, 0}};
}

// A loss, and a gradient of 4 MiB; needs memory of its own in between.
std::vector<at::Tensor> step(const std::vector<MicroBatch>& batches) {
  const at::Tensor x = batches[0].inputs[0];
  const at::Tensor gradient = (x * 2).t().mm(x + 1);
  return {x.sum(), gradient};
}

int64_t allocated_bytes() {
  return c10::getDeviceAllocator(at::kCUDA)->getDeviceStats(kDevice.index()).allocated_bytes[0].current;
}

}  // namespace

TEST_CASE("graphs of other shapes share the memory of the first one", "[gpu][step_graph]") {
  if (!test::has_device()) return;
  const std::vector<int64_t> sizes{64, 96, 32};
  std::vector<std::unique_ptr<StepGraph>> graphs;
  step(batch(sizes[0], 1));  // the library allocates its workspace
  c10::impl::VirtualGuardImpl(at::kCUDA).synchronizeDevice(kDevice.index());
  std::vector<int64_t> allocated;
  for (const int64_t rows : sizes) {
    graphs.push_back(std::make_unique<StepGraph>(
        make_device_graph(kDevice, graphs.empty() ? nullptr : &graphs.front()->device_graph())));
    REQUIRE(graphs.back()->capture(batch(rows, 0), step).ok());
    graphs.back()->share_results();
    allocated.push_back(allocated_bytes());
  }
  CHECK(allocated[2] - allocated[1] < kWidth * kWidth * 4);  // no results of its own
  for (const size_t i : {0, 1, 2, 1, 0, 0, 2}) {
    const double value = static_cast<double>(i) + 0.5;
    const auto& results = graphs[i]->replay(batch(sizes[i], value));
    const auto rows = static_cast<double>(sizes[i]);
    CHECK(results[0].item<double>() == Approx(rows * kWidth * value));
    CHECK(results[1][3][5].item<double>() == Approx(rows * 2 * value * (value + 1)));
    CHECK(at::equal(results[1], step(batch(sizes[i], value))[1]));
  }
  // Any of them may go first.
  graphs.erase(graphs.begin());
  CHECK(graphs[1]->replay(batch(sizes[2], 4))[0].item<double>() ==
        Approx(4.0 * static_cast<double>(sizes[2]) * kWidth));
}

TEST_CASE("a step of other shapes is not replayed", "[gpu][step_graph]") {
  if (!test::has_device()) return;
  StepGraph graph(make_device_graph(kDevice));
  REQUIRE(graph.capture(batch(64, 0), step).ok());
  CHECK_THROWS(graph.replay(batch(32, 1)));
}
