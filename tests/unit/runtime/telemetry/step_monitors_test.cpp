// What watches a step: times, collectives, memory, the trace, where the time of a run went.
#include <ATen/ATen.h>
#include <ATen/record_function.h>

#include <catch2/catch.hpp>
#include <fstream>
#include <nlohmann/json.hpp>
#include <thread>

#include "runtime/state/offload_scopes.hpp"
#include "runtime/telemetry/comms_log.hpp"
#include "runtime/telemetry/deepspeed_lines.hpp"
#include "runtime/telemetry/fragmentation.hpp"
#include "runtime/telemetry/memory_breakdown.hpp"
#include "runtime/telemetry/python_text.hpp"
#include "runtime/telemetry/run_timings.hpp"
#include "runtime/telemetry/step_times.hpp"
#include "runtime/telemetry/step_trace.hpp"
#include "support/checkout.hpp"
#include "support/mesh_threads.hpp"
#include "support/thread_communicator.hpp"

using namespace dslaunch;
using namespace dslaunch::runtime;
using Catch::Matchers::Contains;
using Catch::Matchers::StartsWith;
using nlohmann::json;

namespace {

// Numbers that DeepSpeed itself gave: tests/oracle/deepspeed_monitors.py.
json deepspeed() {
  std::ifstream in(test::source_file("tests/oracle/deepspeed_monitors.json"));
  return json::parse(in);
}

// All that a communicator was asked for.
struct Recorder : CollectiveObserver {
  std::vector<std::shared_ptr<const CollectiveRecord>> records;
  void issued(const std::shared_ptr<const CollectiveRecord>& record) override { records.push_back(record); }
};

std::shared_ptr<CollectiveRecord> record_of(const char* op, size_t bytes, int ranks) {
  auto record = std::make_shared<CollectiveRecord>();
  record->op = op;
  record->bytes = bytes;
  record->group = "world";
  record->group_size = ranks;
  record->begin = mark_time(at::kCPU);
  record->end.host = record->begin.host;
  record->end.host += std::chrono::microseconds(500);
  return record;
}

}  // namespace

TEST_CASE("a step's phases become DeepSpeed's timers", "[runtime][telemetry]") {
  using enum StepPhase;
  const auto times = break_down(
      {{kForward, 1}, {kBackward, 2}, {kForward, 10}, {kBackward, 20}, {kReduce, 5}, {kUpdate, 0.25}, {kGather, 0.5}});
  CHECK(format_accumulation_step_times(times.last_accumulation_step) ==
        "time (ms) | fwd_microstep: 10.00 | bwd_microstep: 25.00 | bwd_inner_microstep: 20.00 | "
        "bwd_allreduce_microstep: 5.00 | step_microstep: 0.75");
  CHECK(format_step_times(times.step) ==
        "time (ms) | fwd: 11.00 | bwd: 27.00 | bwd_inner: 22.00 | bwd_allreduce: 5.00 | step: 0.75");
}

TEST_CASE("steps are timed in order, and taken one by one", "[runtime][telemetry]") {
  StepTimes times(at::kCPU);
  times.begin_step(1);
  times.end_phase(StepPhase::kForward);
  times.begin_step(2);
  times.end_phase(StepPhase::kBackward);
  const auto first = times.take().step, second = times.take().step;
  CHECK(first.forward > 0);
  CHECK(first.backward == 0);
  CHECK(second.forward == 0);
  CHECK(second.backward > 0);
}

TEST_CASE("DeepSpeed's progress line has Python's lists", "[runtime][telemetry]") {
  CHECK(format_step_line(10, 2, {1e-5}, {{true, 0.9, 0.95}}) == "step=10, skipped=2, lr=[1e-05], mom=[(0.9, 0.95)]");
  CHECK(format_step_line(1, 0, {0.1, 2}, {{false, 0.9, 0}, {false, 0, 0}}) ==
        "step=1, skipped=0, lr=[0.1, 2.0], mom=[0.9, 0.0]");
}

TEST_CASE("throughput leaves the first two steps out", "[runtime][telemetry]") {
  ThroughputAverage average(32, 4);
  average.add_step(9000);
  average.add_step(8000);
  CHECK(average.line(2, 0, 0, {}).empty());
  average.add_step(1000);
  average.add_step(3000);
  CHECK(average.line(4, 3 << 29, 2ll << 30, {}) ==
        "micro_step=16/global_step=4, RunningAvgSamplesPerSec=16.0, CurrSamplesPerSec=10.666666666666666, "
        "MemAllocated=1.5GB, MaxMemAllocated=2.0GB");
  CHECK_THAT(average.line(4, 0, 0, 6e12), Catch::Matchers::EndsWith(", TFLOPS=2.00"));
}

TEST_CASE("bandwidths, averages and sizes are DeepSpeed's", "[runtime][telemetry]") {
  const json oracle = deepspeed().at("comms");
  for (const auto& row : oracle.at("bandwidths_of_4")) {
    INFO(row.dump());
    const Bandwidth bandwidth = bandwidth_of(row[0], row[1], 4, row[2]);
    CHECK(bandwidth.algorithm == Approx(row[3].get<double>()).epsilon(1e-12));
    CHECK(bandwidth.bus == Approx(row[4].get<double>()).epsilon(1e-12));
  }
  for (const auto& row : oracle.at("trimmed_means")) {
    INFO(row.dump());
    CHECK(trimmed_mean(row[0].get<std::vector<double>>()) == Approx(row[1].get<double>()).epsilon(1e-12));
  }
  for (const auto& row : oracle.at("sizes")) CHECK(python_size(row[0].get<size_t>()) == row[1].get<std::string>());
}

TEST_CASE("latencies count exactly and keep a bounded sample", "[runtime][telemetry]") {
  Latencies latencies;
  for (int i = 0; i < 100'000; ++i) latencies.add(i);
  CHECK(latencies.count() == 100'000);
  CHECK(latencies.total() == 99'999.0 * 100'000 / 2);
  CHECK(latencies.sample().size() <= 8192);
  CHECK(latencies.sample().size() > 4096);
  CHECK(trimmed_mean(latencies.sample()) == Approx(50'000).epsilon(0.01));
}

TEST_CASE("an observed communicator does the same and tells of every call", "[runtime][telemetry]") {
  test::ThreadCommunicator inner(std::make_shared<test::ThreadGroup>(1), 0);
  Recorder recorder;
  ObservedCommunicator observed(inner, "data", at::kCPU, {&recorder});
  std::vector<float> in{1, 2, 3, 4}, out(4);
  observed.all_reduce({in.data(), 4, comm::DType::kFloat32}, comm::ReduceOp::kSum);
  observed.reduce_scatter({in.data(), 4, comm::DType::kFloat32}, {out.data(), 4, comm::DType::kFloat32},
                          comm::ReduceOp::kSum);
  CHECK(out == in);
  observed.all_gather({in.data(), 2, comm::DType::kFloat32}, {out.data(), 2, comm::DType::kFloat32});
  observed.all_to_all({in.data(), 2, comm::DType::kFloat32}, {out.data(), 2, comm::DType::kFloat32});
  observed.broadcast({in.data(), 3, comm::DType::kFloat32}, 0);
  observed.barrier();
  std::vector<std::pair<std::string, size_t>> seen;
  for (const auto& record : recorder.records) {
    seen.emplace_back(record->op, record->bytes);
    CHECK(record->group == "data");
    CHECK(record->group_size == 1);
    CHECK(record->end.host >= record->begin.host);
  }
  CHECK(seen == std::vector<std::pair<std::string, size_t>>{{"all_reduce", 16},
                                                            {"reduce_scatter_tensor", 16},
                                                            {"all_gather_into_tensor", 8},
                                                            {"all_to_all_single", 8},
                                                            {"broadcast", 12},
                                                            {"barrier", 0}});
}

TEST_CASE("an observed communicator tells of exchanges, with what moves in the busier direction",
          "[runtime][telemetry]") {
  std::vector<std::pair<std::string, size_t>> seen;
  test::run_mesh({.data = 2}, [&](const comm::Groups& groups) {
    Recorder recorder;
    ObservedCommunicator observed(groups.world, "pipe", at::kCPU, {&recorder});
    const bool is_first = groups.world.rank() == 0;
    const int peer = is_first ? 1 : 0;
    std::vector<float> out{1, 2, 3}, in(3);
    const comm::Outgoing send{comm::Buffer{out.data(), is_first ? 3U : 1U, comm::DType::kFloat32}, peer};
    const comm::Incoming receive{{in.data(), is_first ? 1U : 3U, comm::DType::kFloat32}, peer};
    observed.exchange({&send, 1}, {&receive, 1});
    is_first ? observed.send(send.buffer, peer) : observed.receive(receive.buffer, peer);
    is_first ? observed.receive(receive.buffer, peer) : observed.send(send.buffer, peer);
    if (!is_first) return;
    CHECK(in[0] == 1);
    for (const auto& record : recorder.records) seen.emplace_back(record->op, record->bytes);
  });
  CHECK(seen == std::vector<std::pair<std::string, size_t>>{{"batch_isend_irecv", 12}, {"send", 12}, {"recv", 4}});
}

TEST_CASE("the comms log has a line a call and a table like DeepSpeed's", "[runtime][telemetry]") {
  CommsLog log({.enabled = true, .verbose = true});
  for (size_t bytes : {4096, 1024, 4096}) log.issued(record_of("all_reduce", bytes, 4));
  log.issued(record_of("barrier", 0, 4));
  const auto lines = log.collect(true);
  REQUIRE(lines.size() == 4);
  CHECK(lines[0] ==
        "comm op: all_reduce | time (ms): 0.50 | msg size: 4.0 KB | algbw (Gbps): 0.13 | busbw (Gbps): 0.10");
  CHECK(log.collect(true).empty());
  CHECK(log.table() ==
        "Comm. Op            Message Size        Count               Total Latency(ms)   Avg Latency(ms)     "
        "tput_avg (Gbps)     busbw_avg (Gbps)    \n"
        "all_reduce\n"
        "                    1.0 KB              1                   0.50                0.50                "
        "0.03                0.02                \n"
        "                    4.0 KB              2                   1.00                0.50                "
        "0.13                0.10                \n"
        "barrier\n"
        "                    0B                  1                   0.50                0.50                "
        "0.00                0.00                ");
}

TEST_CASE("the comms log takes the kinds that are wanted, and tells phases apart in debug", "[runtime][telemetry]") {
  CommsLog log({.enabled = true, .prof_all = false, .prof_ops = {"all_reduce"}, .verbose = true, .debug = true});
  log.issued(record_of("all_reduce", 4, 2));
  log.begin_step(1);
  log.issued(record_of("all_reduce", 4, 2));
  log.issued(record_of("barrier", 0, 2));
  log.end_phase(StepPhase::kReduce);
  const auto lines = log.collect(true);
  REQUIRE(lines.size() == 2);
  CHECK_THAT(lines[0], StartsWith("comm op: all_reduce | [Caller Func: between steps] | "));
  CHECK_THAT(lines[1], StartsWith("comm op: all_reduce | [Caller Func: reduce] | "));
}

TEST_CASE("memory is shown in DeepSpeed's words", "[runtime][telemetry]") {
  const SystemMemory host =
      parse_memory_info("MemTotal:       8388608 kB\nMemFree: 1 kB\nMemAvailable:   6291456 kB\n");
  CHECK(host.total == 8ll << 30);
  CHECK(host.available == 6ll << 30);
  CHECK(format_memory("Engine after step", {3 << 29, 2ll << 30, 5ll << 29, 3ll << 30}, host) ==
        std::vector<std::string>{"Engine after step",
                                 "MA 1.5 GB         Max_MA 2.0 GB         CA 2.5 GB         Max_CA 3 GB ",
                                 "CPU Virtual Memory:  used = 2.0 GB, percent = 25.0%",
                                 "fragmentation 1.00 GiB (33.3%) at the peak of this phase"});
  MemoryBreakdown breakdown(at::kCPU);
  breakdown.begin_step(1);
  breakdown.end_phase(StepPhase::kForward);
  breakdown.end_phase(StepPhase::kBackward);
  breakdown.end_phase(StepPhase::kUpdate);
  breakdown.end_step();
  const auto lines = breakdown.take();
  REQUIRE(lines.size() == 12);
  CHECK(lines[0] == "Engine before forward");
  CHECK(lines[3] == "Engine after forward");
  CHECK(lines[6] == "Engine after backward");
  CHECK(lines[9] == "Engine after step");
}

TEST_CASE("fragmentation is the part of the reserved memory that no tensor used at the peak", "[runtime][telemetry]") {
  CHECK(fragmentation_of(0, 0).bytes == 0);
  CHECK(fragmentation_of(0, 0).share == 0);
  CHECK(fragmentation_of(950, 1000).bytes == 50);
  CHECK(fragmentation_of(950, 1000).share == 0.05);
  CHECK(fragmentation_of(1000, 1000).share == 0);
  CHECK(fragmentation_of(1001, 1000).bytes == 0);  // a pool that the allocator does not count as reserved
  CHECK(describe(fragmentation_of(27ll << 29, 14ll << 30)) == "0.50 GiB (3.6%)");
}

TEST_CASE("a trace has the phases, operators and collectives of its step and of no other", "[runtime][telemetry]") {
  StepTrace trace(2, 3, at::kCPU);
  const auto issue = [&](const char* op) { trace.issued(record_of(op, 64, 4)); };
  at::Tensor a = at::ones({4, 4});
  trace.begin_step(1);
  issue("barrier");
  trace.end_step();
  CHECK(!trace.take());
  trace.begin_step(2);
  a = at::matmul(a, a);
  { RECORD_FUNCTION("torch::autograd::CppNode<ours::(anonymous namespace)::Fused>", std::vector<c10::IValue>()); }
  trace.end_phase(StepPhase::kForward);
  issue("all_reduce");
  trace.end_phase(StepPhase::kReduce);
  trace.end_step();
  a = at::relu(a);
  issue("broadcast");
  const auto taken = trace.take();
  REQUIRE(taken);
  const auto document = json::parse(taken->json);
  CHECK(!trace.take());

  std::map<std::string, std::vector<json>> by_category;
  std::map<int, std::string> lanes;
  for (const auto& event : document.at("traceEvents")) {
    CHECK(event.at("pid") == 3);
    if (event.at("ph") == "X") by_category[event.at("cat")].push_back(event);
    if (event.at("name") == "thread_name") lanes[event.at("tid")] = event.at("args").at("name");
  }
  REQUIRE(by_category["step"].size() == 1);
  const json step = by_category["step"][0];
  CHECK(step.at("name") == "step 2");
  REQUIRE(by_category["phase"].size() == 2);
  CHECK(by_category["phase"][0].at("name") == "forward");
  CHECK(by_category["phase"][1].at("name") == "reduce");
  REQUIRE(by_category["collective"].size() == 1);
  CHECK(by_category["collective"][0].at("name") == "all_reduce");
  CHECK(by_category["collective"][0].at("args") == json{{"bytes", "64"}, {"ranks", "4"}});
  CHECK(lanes.at(by_category["collective"][0].at("tid")) == "communication (world)");
  std::vector<std::string> operators;
  for (const auto& event : by_category["operator"]) {
    operators.push_back(event.at("name"));
    CHECK(lanes.at(event.at("tid")) == "compute");
    CHECK(event.at("ts").get<double>() >= step.at("ts").get<double>());
    CHECK(event.at("ts").get<double>() + event.at("dur").get<double>() <=
          step.at("ts").get<double>() + step.at("dur").get<double>() + 0.01);
  }
  CHECK_THAT(operators, Catch::Matchers::VectorContains(std::string("aten::matmul")) &&
                            Catch::Matchers::VectorContains(std::string("aten::mm")) &&
                            Catch::Matchers::VectorContains(std::string("FusedBackward")) &&
                            !Catch::Matchers::VectorContains(std::string("aten::relu")));
}

TEST_CASE("a trace has a lane for each kind of work of offloaded state", "[runtime][telemetry]") {
  StepTrace trace(1, 0, at::kCPU);
  trace.begin_step(1);
  {
    const OffloadScope outer(kDownloadScope, 64);
    at::ones({4}).copy_(at::zeros({4}));
  }
  std::thread([] {
    { const OffloadScope update(kHostUpdateScope, 400); }
    { const OffloadScope copy(kUploadScope, 200); }
  }).join();
  trace.end_step();
  { const OffloadScope late(kUploadScope, 1); }

  const auto document = json::parse(trace.take()->json);
  std::map<int, std::string> lanes;
  std::map<std::string, json> spans;
  for (const auto& event : document.at("traceEvents")) {
    if (event.at("name") == "thread_name") lanes[event.at("tid")] = event.at("args").at("name");
    if (event.value("cat", "") == "offload") CHECK(spans.emplace(event.at("name"), event).second);
  }
  REQUIRE(spans.size() == 3);
  CHECK(spans.at("gradients to host").at("args").at("bytes") == "64");
  CHECK(spans.at("host update").at("args").at("bytes") == "400");
  CHECK(spans.at("parameters to device").at("args").at("bytes") == "200");
  for (const auto& [name, span] : spans) CHECK(lanes.at(span.at("tid")) == name);
}

TEST_CASE("where the time went is a table that adds up", "[runtime][telemetry]") {
  using namespace std::chrono_literals;
  RunTimings timings(RunTimings::Seconds(1.5), RunTimings::Seconds(0.5));
  auto now = RunTimings::Clock::now() + 1h;
  timings.end("before", now);
  for (int i = 0; i < 4; ++i) timings.end("steps", now += 250ms);
  const std::string table = timings.table();
  CHECK_THAT(table, Contains("launch, until the rank's program started") && Contains("1.000") &&
                        Contains("loading the program"));
  CHECK_THAT(table, Contains("  steps" + std::string(44, ' ') + "1.000     0.0%   4 times, 250.0 ms each"));
  CHECK_THAT(table, !Contains("beside"));
  timings.add_beside("the GPU's driver and context", 0.25);
  CHECK(timings.table() ==
        table + "\nbeside these, on other threads\n  the GPU's driver and context                     0.250");
  const auto alive = time_since_process_start();
  REQUIRE(alive);
  CHECK(alive->count() >= 0);
  CHECK(alive->count() < 3600);
}

TEST_CASE("a clock that says the rank began before the launch is not believed", "[runtime][telemetry]") {
  CHECK_THAT(RunTimings(RunTimings::Seconds(-5), RunTimings::Seconds(0.5)).table(), !Contains("launch, until"));
  const auto quick = RunTimings(RunTimings::Seconds(0.495), RunTimings::Seconds(0.5));  // the start's tick rounded down
  CHECK_THAT(quick.table(), Contains("launch, until the rank's program started         0.000"));
}
