// Kernels and copies that LibTorch's profiler records on a CUDA device, and their lanes in a trace. Without a device it
// is skipped.
#include "runtime/telemetry/kernel_recorder.hpp"

#include <ATen/ATen.h>

#include <algorithm>
#include <catch2/catch.hpp>
#include <nlohmann/json.hpp>
#include <set>

#include "runtime/state/step_streams.hpp"
#include "runtime/telemetry/step_trace.hpp"
#include "support/cuda_device.hpp"

using namespace dslaunch;
using namespace dslaunch::runtime;

namespace {

const at::Device kDevice(at::kCUDA, 0);

// On two streams; the sum is read back, so that the device has finished.
void compute(StepStreams& streams) {
  const at::Tensor a = at::ones({2048, 2048}, at::TensorOptions().device(kDevice));
  streams.wait(SideStream::kReduction, streams.mark());
  const StreamMark copied = streams.run(SideStream::kReduction, [&] { at::empty_like(a).copy_(a); });
  const at::Tensor gemm = at::mm(a, a);
  streams.wait(copied);
  CHECK(gemm.sum().item<float>() == 2048.F * 2048.F * 2048.F);
}

}  // namespace

TEST_CASE("kernels and copies are recorded with their streams and times", "[gpu][kernel_recorder]") {
  if (!test::has_device()) return;
  StepStreams streams(kDevice, true);
  compute(streams);
  for (int round = 0; round < 2; ++round) {  // the second start finds CUPTI set up
    KernelRecorder recorder;
    recorder.start();
    const auto began = std::chrono::system_clock::now();
    compute(streams);
    const auto ended = std::chrono::system_clock::now();
    const auto spans = recorder.stop(std::chrono::sys_time<std::chrono::nanoseconds>(began));
    const double length_us = std::chrono::duration<double, std::micro>(ended - began).count();
    std::set<int64_t> compute_streams, copy_streams;
    for (const auto& span : spans) {
      CHECK(span.begin_us > -1000);
      CHECK(span.begin_us < span.end_us);
      CHECK(span.end_us < length_us + 1000);
      CHECK(span.work != DeviceWork::kCommunication);
      (span.work == DeviceWork::kCompute ? compute_streams : copy_streams).insert(span.stream);
    }
    CHECK(!compute_streams.empty());
    CHECK(std::any_of(copy_streams.begin(), copy_streams.end(),
                      [&](int64_t stream) { return !compute_streams.contains(stream); }));
  }
}

TEST_CASE("a trace has a lane for each stream of the device", "[gpu][step_trace]") {
  if (!test::has_device()) return;
  StepStreams streams(kDevice, true);
  compute(streams);
  StepTrace trace(1, 0, kDevice);
  trace.begin_step(1);
  compute(streams);
  trace.end_phase(StepPhase::kForward);
  trace.end_step();
  const auto taken = trace.take();
  REQUIRE(taken);
  CHECK(taken->communication.source == CommunicationTime::Source::kKernels);
  CHECK(taken->communication.total_ms == 0);
  std::set<std::string> lanes;
  double step_begin = 0, step_end = 0;
  const auto document = nlohmann::json::parse(taken->json);
  for (const auto& event : document.at("traceEvents")) {
    if (event.at("name") == "thread_name") lanes.insert(event.at("args").at("name"));
    if (event.value("cat", "") != "step") continue;  // the host's span and the device's
    const double begin = event.at("ts"), duration = event.at("dur");
    step_begin = begin;
    step_end = std::max(step_end, begin + duration);
  }
  const auto is_lane = [](const char* kind) {
    return [kind](const std::string& lane) { return lane.starts_with("device: stream ") && lane.ends_with(kind); };
  };
  CHECK(std::count_if(lanes.begin(), lanes.end(), is_lane(" (compute)")) >= 1);
  CHECK(std::count_if(lanes.begin(), lanes.end(), is_lane(" (copies)")) >= 1);
  for (const auto& event : document.at("traceEvents")) {  // both clocks agree
    if (event.value("cat", "") != "kernel") continue;
    CHECK(event.at("ts").get<double>() > step_begin - 200);
    CHECK(event.at("ts").get<double>() + event.at("dur").get<double>() < step_end + 200);
  }
}
