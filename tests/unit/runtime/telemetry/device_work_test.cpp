// Intervals of a device's work: unions, differences, and the communication that computation does not hide.
#include "runtime/telemetry/device_work.hpp"

#include <catch2/catch.hpp>
#include <random>

using namespace dslaunch::runtime;
using Catch::Matchers::Equals;

namespace {

std::vector<std::pair<double, double>> pairs(const std::vector<Interval>& intervals) {
  std::vector<std::pair<double, double>> out;
  for (const auto& each : intervals) out.emplace_back(each.begin, each.end);
  return out;
}

using Pairs = std::vector<std::pair<double, double>>;

// The oracle: whole microseconds, one by one.
std::vector<bool> covered(const std::vector<Interval>& intervals, int length) {
  std::vector<bool> out(static_cast<size_t>(length), false);
  for (const auto& each : intervals) {
    for (int i = static_cast<int>(each.begin); i < static_cast<int>(each.end); ++i) out[static_cast<size_t>(i)] = true;
  }
  return out;
}

}  // namespace

TEST_CASE("overlapping and touching intervals become one", "[runtime][telemetry]") {
  CHECK(merged({}).empty());
  CHECK(pairs(merged({{5, 7}, {0, 2}, {2, 3}, {1, 2}, {9, 9}, {8, 6}})) == Pairs{{0, 3}, {5, 7}});
  CHECK(pairs(merged({{0, 10}, {2, 3}, {4, 12}})) == Pairs{{0, 12}});
}

TEST_CASE("what other intervals cover is cut out", "[runtime][telemetry]") {
  CHECK(pairs(without({{0, 10}}, {})) == Pairs{{0, 10}});
  CHECK(pairs(without({{0, 10}}, {{2, 3}, {5, 20}})) == Pairs{{0, 2}, {3, 5}});
  CHECK(pairs(without({{0, 4}, {6, 8}, {9, 10}}, {{3, 7}})) == Pairs{{0, 3}, {7, 8}, {9, 10}});
  CHECK(without({{2, 3}}, {{0, 10}}).empty());
}

TEST_CASE("unions and differences agree with counting every unit of time", "[runtime][telemetry]") {
  constexpr int kLength = 60;
  std::mt19937 random(7);
  const auto draw = [&] {
    std::vector<Interval> out(random() % 8);
    for (auto& each : out) {
      each.begin = static_cast<double>(random() % kLength);
      each.end = std::min<double>(kLength, each.begin + static_cast<double>(random() % 12));
    }
    return out;
  };
  for (int round = 0; round < 300; ++round) {
    const auto a = draw(), b = draw();
    const auto in_a = covered(a, kLength), in_b = covered(b, kLength);
    int num_in_a = 0, num_only_a = 0;
    for (size_t i = 0; i < kLength; ++i) {
      num_in_a += in_a[i] ? 1 : 0;
      num_only_a += in_a[i] && !in_b[i] ? 1 : 0;
    }
    CHECK(length_of(merged(a)) == num_in_a);
    CHECK(length_of(without(merged(a), merged(b))) == num_only_a);
  }
}

TEST_CASE("communication is exposed where no kernel computes, and a copy hides none", "[runtime][telemetry]") {
  const auto nccl = work_of_kernel("ncclDevKernel_ReduceScatter_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)");
  REQUIRE(nccl == DeviceWork::kCommunication);
  REQUIRE(work_of_kernel("void at::native::vectorized_elementwise_kernel<4>") == DeviceWork::kCompute);
  const std::vector<DeviceSpan> spans{{"gemm", DeviceWork::kCompute, 7, 100, 200},
                                      {"reduce", nccl, 20, 150, 260},  // 60 exposed
                                      {"copy", DeviceWork::kCopy, 24, 190, 300},
                                      {"gather", nccl, 28, 250, 270},  // on another stream: 10 more
                                      {"next forward", DeviceWork::kCompute, 7, 300, 400},
                                      {"gather", nccl, 20, 290, 350},        // the step's last: 10, until 310
                                      {"next gather", nccl, 20, 350, 500}};  // of the next step
  const auto found = communication_in(spans, {100, 340});
  CHECK(pairs(found.all) == Pairs{{150, 270}, {290, 340}});
  CHECK(pairs(found.exposed) == Pairs{{200, 270}, {290, 300}});
  CHECK(describe_stream(7, spans) == "device: stream 7 (compute)");
  CHECK(describe_stream(20, spans) == "device: stream 20 (communication)");
  CHECK(describe_stream(24, spans) == "device: stream 24 (copies)");
}

TEST_CASE("the line on communication names the rank that waits most, and says what it knows", "[runtime][telemetry]") {
  using enum CommunicationTime::Source;
  CHECK(describe_communication(4, {{kKernels, 15.6, 1.25}, {kKernels, 12.5, 3.25}}) ==
        "exposed communication 3.25 ms of 12.5 ms communication in step 4 (rank 1, the most of 2 ranks; mean 2.25 ms)");
  CHECK_THAT(
      describe_communication(4, {{kSynchronous, 2, 2}, {kSynchronous, 1, 1}}),
      Equals("exposed communication 2.00 ms of 2.00 ms communication in step 4 (rank 0, the most of 2 ranks; mean "
             "1.50 ms); on CPU ranks it is synchronous, so that all of it is exposed"));
  const auto unknown = describe_communication(4, {{kKernels, 9, 1}, {kEvents, 10, 10}});
  CHECK_THAT(unknown, Equals("exposed communication unknown, of 10.0 ms communication in step 4 (rank 1, the most of 2 "
                             "ranks): the kernels could not be recorded"));
}
