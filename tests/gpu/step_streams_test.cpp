// Side streams of a step on a CUDA device, eagerly and in a capture. Without a device it is skipped.
#include "runtime/state/step_streams.hpp"

#include <ATen/ATen.h>

#include <catch2/catch.hpp>

#include "runtime/engine/step/device_graph.hpp"
#include "support/cuda_device.hpp"

using namespace dslaunch;
using namespace dslaunch::runtime;
using namespace dslaunch::runtime::engine::step;

namespace {

const at::Device kDevice(at::kCUDA, 0);

// Long enough that work which does not wait for it is early.
struct SlowSum {
  at::Tensor factor = at::ones({4096, 4096}, at::TensorOptions().device(kDevice));
  at::Tensor gemm = at::empty_like(factor), sum = at::zeros({}, factor.options());
  void run() {
    for (int i = 0; i < 8; ++i) at::mm_out(gemm, factor, factor);
    sum.copy_(gemm[0][0]);
  }
};

}  // namespace

TEST_CASE("streams wait for marks of others", "[gpu][step_streams]") {
  if (!test::has_device()) return;
  StepStreams streams(kDevice, true);
  REQUIRE(streams.overlaps());
  SlowSum slow;
  streams.wait(SideStream::kUnshard, streams.mark());
  const StreamMark computed = streams.run(SideStream::kUnshard, [&] { slow.run(); });
  CHECK(streams.is_pending(computed));
  at::Tensor copy = at::zeros_like(slow.sum);
  streams.wait(SideStream::kReduction, computed);
  const StreamMark copied = streams.run(SideStream::kReduction, [&] { copy.copy_(slow.sum); });
  streams.wait(copied);
  CHECK((copy + 1).item<float>() == 4097);
}

TEST_CASE("after a join nothing waits for earlier marks", "[gpu][step_streams]") {
  if (!test::has_device()) return;
  StepStreams streams(kDevice, true);
  SlowSum slow;
  streams.wait(SideStream::kPublication, streams.mark());
  const StreamMark end = streams.run(SideStream::kPublication, [&] { slow.run(); });
  streams.join();
  CHECK_FALSE(streams.is_pending(end));
  CHECK((slow.sum + 1).item<float>() == 4097);  // the current stream has waited for it
  const StreamMark mark = streams.mark();
  CHECK(streams.is_pending(mark));
  streams.discard();
  CHECK_FALSE(streams.is_pending(mark));
}

// Waiting inside a capture for a point outside, or the reverse, would be an error of CUDA.
TEST_CASE("side streams can be captured whatever ran on them before and after", "[gpu][step_streams]") {
  if (!test::has_device()) return;
  StepStreams streams(kDevice, true);
  SlowSum slow;
  const StreamMark outside = streams.run(SideStream::kReduction, [&] { slow.run(); });
  streams.join();
  slow.sum.item<float>();  // the device is idle
  auto graph = make_device_graph(kDevice);
  StreamMark inside;
  graph->capture([&] {
    streams.wait(outside);
    streams.wait(SideStream::kReduction, outside);
    streams.wait(SideStream::kReduction, streams.mark());
    inside = streams.run(SideStream::kReduction, [&] { slow.sum.add_(1); });
    streams.join();
  });
  streams.wait(inside);
  graph->replay();
  graph->replay();
  CHECK(slow.sum.item<float>() == 4098);
}
