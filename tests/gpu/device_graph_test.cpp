// Recorded work against the same work launch by launch on a CUDA device. Without one it is skipped.
#include "runtime/engine/step/device_graph.hpp"

#include <ATen/ATen.h>
#include <c10/core/CachingDeviceAllocator.h>
#include <c10/core/Event.h>
#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include <catch2/catch.hpp>
#include <vector>

#include "runtime/device/gemm.hpp"
#include "runtime/device/random_state.hpp"
#include "runtime/generated_kernels/kernel_files.hpp"
#include "support/cuda_device.hpp"

using namespace dslaunch;
using namespace dslaunch::runtime;
using namespace dslaunch::runtime::engine::step;

namespace {

const auto kOnDevice = at::TensorOptions().device(at::Device(at::kCUDA, 0));

at::Tensor draw() {
  return at::rand({1000}, kOnDevice);
}

std::vector<at::Tensor> draw_launched(int number) {
  device::seed_random_state(7, 0, kOnDevice.device());
  std::vector<at::Tensor> out;
  for (int i = 0; i < number; ++i) out.push_back(draw());
  device::seed_random_state(7, 0, kOnDevice.device());
  return out;
}

constexpr int64_t kWidth = 4096;  // a GEMM of milliseconds

const at::Device kDevice(at::kCUDA, 0);

struct Gemms {
  at::Tensor factor = at::zeros({kWidth, kWidth}, at::TensorOptions().device(kDevice)), gemm = at::empty_like(factor);
  void run(int times) {
    for (int i = 0; i < times; ++i) at::mm_out(gemm, factor, factor);
  }
};

// What streams of the pool get from now on, a recording's among them, waits for `times` GEMMs.
void hold_all_streams(Gemms& gemms, int times) {
  constexpr int kStreamsOfPool = 32;
  const c10::impl::VirtualGuardImpl cuda(at::kCUDA);
  const auto busy = cuda.getStreamFromGlobalPool(kDevice, /*isHighPriority=*/true);
  c10::Event end(at::kCUDA);
  {
    const c10::StreamGuard on_busy(busy);
    gemms.run(times);
    end.record(busy);
  }
  for (int i = 0; i < kStreamsOfPool; ++i) end.block(cuda.getStreamFromGlobalPool(kDevice));
}

}  // namespace

TEST_CASE("replays draw what launches draw, also where the stream of the recording was held", "[gpu][device_graph]") {
  if (!test::has_device()) return;
  const auto expected = draw_launched(4);
  CHECK(at::equal(draw(), expected[0]));
  Gemms held, recorded;
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

TEST_CASE("a recording draws numbers again from a place that was saved in it", "[gpu][device_graph]") {
  if (!test::has_device()) return;
  const auto expected = draw_launched(7);
  CHECK(at::equal(draw(), expected[0]));
  const auto graph = make_device_graph(kDevice);
  std::vector<at::Tensor> drawn;
  at::Tensor again;
  graph->capture([&] {
    drawn.push_back(draw());
    const at::Tensor saved = device::save_random_state(kDevice);
    drawn.push_back(draw());
    const at::Tensor current = device::save_random_state(kDevice);
    device::restore_random_state(saved, kDevice);
    again = draw();
    device::restore_random_state(current, kDevice);
    drawn.push_back(draw());
  });
  for (size_t replay = 0; replay < 2; ++replay) {
    graph->replay();
    for (size_t i = 0; i < drawn.size(); ++i) CHECK(at::equal(drawn[i], expected[1 + 3 * replay + i]));
    CHECK(at::equal(again, drawn[1]));
  }
  CHECK(device::save_random_state(kDevice).numel() >
        device::save_random_state(at::kCPU).numel() + 8);  // a state, not a place
}

TEST_CASE("a recording that fails leaves random numbers and earlier recordings as they were", "[gpu][device_graph]") {
  if (!test::has_device()) return;
  const auto expected = draw_launched(5);
  at::Tensor drawn;
  const auto first = make_device_graph(kDevice);
  first->capture([&] { drawn = draw(); });
  first->replay();
  CHECK(at::equal(drawn, expected[0]));
  const auto failing = make_device_graph(kDevice);
  CHECK_THROWS(failing->capture([&] { draw().sum().item<float>(); }));
  CHECK(at::equal(draw(), expected[1]));
  first->replay();
  CHECK(at::equal(drawn, expected[2]));
  const auto second = make_device_graph(kDevice);
  at::Tensor of_second;
  second->capture([&] { of_second = draw(); });
  second->replay();
  CHECK(at::equal(of_second, expected[3]));
  first->replay();
  CHECK(at::equal(drawn, expected[4]));
}

TEST_CASE("a recording has the measured algorithms of GEMMs, and measures none", "[gpu][device_graph][gemm]") {
  if (!test::has_device()) return;
  const auto cache = c10::make_intrusive<device::GemmCache>(generated_kernels::kernel_directory());
  const auto half = kOnDevice.dtype(at::kBFloat16);
  const at::Tensor left = at::randn({2080, 1544}, half), right = at::randn({1544, 2064}, half),
                   later = at::randn({1544, 2072}, half);
  at::Tensor launched = at::empty({2080, 2064}, half), out = at::empty_like(launched),
             out_of_later = at::empty({2080, 2072}, half);
  device::multiply({left, right}, launched, cache);
  const int measured = cache->counts().measured;
  const auto graph = make_device_graph(kDevice);
  graph->capture([&] {
    device::multiply({left, right}, out, cache);
    device::multiply({left, later}, out_of_later, cache);  // not seen before
  });
  CHECK(cache->counts().measured == measured);
  left.copy_(at::randn({2080, 1544}, half));
  out_of_later.zero_();
  graph->replay();
  device::multiply({left, right}, launched, cache);
  CHECK(out.equal(launched));
  const at::Tensor exact = left.to(at::kDouble).mm(later.to(at::kDouble));
  CHECK((out_of_later.to(at::kDouble) - exact).norm().item<double>() < 3e-3 * exact.norm().item<double>());
}
