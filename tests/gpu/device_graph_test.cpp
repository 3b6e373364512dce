// Recorded work against the same work launch by launch on a CUDA device. Without one it is skipped.
#include "runtime/engine/step/device_graph.hpp"

#include <ATen/ATen.h>
#include <c10/core/CachingDeviceAllocator.h>
#include <c10/core/Event.h>
#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include <catch2/catch.hpp>
#include <vector>

#include "runtime/state/random_state.hpp"
#include "support/cuda_device.hpp"

using namespace dslaunch;
using namespace dslaunch::runtime;
using namespace dslaunch::runtime::engine::step;

namespace {

constexpr int64_t kWidth = 4096;  // a product of milliseconds

const at::Device kDevice(at::kCUDA, 0);

struct Products {
  at::Tensor factor = at::zeros({kWidth, kWidth}, at::TensorOptions().device(kDevice)),
             product = at::empty_like(factor);
  void run(int times) {
    for (int i = 0; i < times; ++i) at::mm_out(product, factor, factor);
  }
};

// What streams of the pool get from now on, a recording's among them, waits for `products` products.
void hold_all_streams(Products& products, int times) {
  constexpr int kStreamsOfPool = 32;
  const c10::impl::VirtualGuardImpl cuda(at::kCUDA);
  const auto busy = cuda.getStreamFromGlobalPool(kDevice, /*isHighPriority=*/true);
  c10::Event end(at::kCUDA);
  {
    const c10::StreamGuard on_busy(busy);
    products.run(times);
    end.record(busy);
  }
  for (int i = 0; i < kStreamsOfPool; ++i) end.block(cuda.getStreamFromGlobalPool(kDevice));
}

}  // namespace

TEST_CASE("replays draw what launches draw, also where the stream of the recording was held", "[gpu][device_graph]") {
  if (!test::has_device()) return;
  const auto on_device = at::TensorOptions().device(kDevice);
  const auto draw = [&] { return at::rand({1000}, on_device); };
  seed_random_state(7, 0, kDevice);
  std::vector<at::Tensor> expected;
  for (int i = 0; i < 4; ++i) expected.push_back(draw());

  seed_random_state(7, 0, kDevice);
  CHECK(at::equal(draw(), expected[0]));
  Products held, recorded;
  hold_all_streams(held, 1);  // memory and algorithms are chosen
  recorded.run(1);
  c10::impl::VirtualGuardImpl(at::kCUDA).synchronizeDevice(kDevice.index());
  c10::getDeviceAllocator(at::kCUDA)->emptyCache();  // the recording does so, and would wait for the device
  hold_all_streams(held, 80);  // far longer than a recording takes, far shorter than what is recorded
  const auto graph = make_device_graph(kDevice);
  at::Tensor drawn;
  graph->capture([&] {
    recorded.run(300);
    drawn = draw();
  });
  for (int i = 1; i < 4; ++i) {
    graph->replay();
    CHECK(at::equal(drawn, expected[i]));
  }
}
