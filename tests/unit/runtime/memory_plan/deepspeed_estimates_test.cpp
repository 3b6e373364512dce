// Against the numbers that DeepSpeed 0.18.2's own functions return.
#include "runtime/memory_plan/deepspeed_estimates.hpp"

#include <catch2/catch.hpp>
#include <utility>
#include <vector>

using namespace dslaunch::runtime::memory_plan;

namespace {

using Bytes = std::pair<double, double>;  // host, GPU

std::vector<Bytes> bytes_of(const std::vector<Estimate>& estimates) {
  std::vector<Bytes> out;
  for (const auto& each : estimates) out.emplace_back(each.host_bytes, each.gpu_bytes);
  return out;
}

}  // namespace

TEST_CASE("the tables of ZeRO 2 are DeepSpeed's", "[runtime][memory_plan]") {
  constexpr int64_t kT5 = 2783959040, kTrillion = 1'000'000'000'000;
  CHECK(bytes_of(estimate_zero2({kT5, 0, 1, 1})) ==
        std::vector<Bytes>{{66815016960, 5567918080}, {16703754240, 55679180800}});
  CHECK(bytes_of(estimate_zero2({kT5, 0, 8, 4})) ==
        std::vector<Bytes>{{534520135680, 5567918080}, {133630033920, 7133895040}});
  CHECK(bytes_of(estimate_zero2({kTrillion, 0, 8, 1})) ==
        std::vector<Bytes>{{48000000000000, 2000000000000}, {48000000000000, 4250000000000}});
}

TEST_CASE("the tables of ZeRO 3 are DeepSpeed's", "[runtime][memory_plan]") {
  const EstimateInputs t5{2783959040, 65798144, 1, 1};
  CHECK(bytes_of(estimate_zero3(t5)) == std::vector<Bytes>{{75166894080, 263192576},
                                                           {75166894080, 263192576},
                                                           {66815016960, 5831110656},
                                                           {66815016960, 5831110656},
                                                           {394788864, 50374455296},
                                                           {16703754240, 50374455296}});
  EstimateInputs on_hosts = t5;
  on_hosts.gpus_per_host = 8;
  on_hosts.num_hosts = 4;
  CHECK(bytes_of(estimate_zero3(on_hosts)) == std::vector<Bytes>{{18791723520, 263192576},
                                                                 {133630033920, 263192576},
                                                                 {16703754240, 437190016},
                                                                 {133630033920, 437190016},
                                                                 {3158310912, 1829169536},
                                                                 {133630033920, 1829169536}});
  const auto trillion = estimate_zero3({1'000'000'000'000, 4'000'000'000, 8, 1});
  CHECK(bytes_of(trillion) == std::vector<Bytes>{{27000000000000, 16000000000},
                                                 {48000000000000, 16000000000},
                                                 {24000000000000, 266000000000},
                                                 {48000000000000, 266000000000},
                                                 {192000000000, 2266000000000},
                                                 {48000000000000, 2266000000000}});
  CHECK((trillion[0].offloads_parameters && trillion[0].offloads_optimizer && trillion[0].builds_sharded));
  CHECK((!trillion[5].offloads_parameters && !trillion[5].offloads_optimizer && !trillion[5].builds_sharded));
}
