// What `dslaunch bench step` prints.
#include "runtime/engine/bench/step_report.hpp"

#include <catch2/catch.hpp>
#include <nlohmann/json.hpp>
#include <sstream>

#include "runtime/engine/bench/step_profile.hpp"

using namespace dslaunch;
using namespace dslaunch::runtime;
using namespace dslaunch::runtime::engine::bench;
using Catch::Matchers::Contains;

namespace {

constexpr int64_t kGiB = int64_t{1} << 30;

StepMeasurement some_measurement() {
  StepMeasurement out;
  out.num_parameters = 163'037'184;
  out.num_warmup = 10;
  out.step_ms = {32, 31, 30, 35};
  out.held_ms = {31, 30.1, 31.1, 33};
  out.first_step_seconds = 1.064;
  out.tokens_per_step = 16'384;
  out.samples_per_step = 16;
  out.macs = {2'000'000'000'000, 4'300'000'000'000, 0};
  out.memory = {9 * kGiB, 10 * kGiB, 3 * kGiB};
  out.profile = {
      .num_steps = 2,
      .wall_ms = 64,
      .busy_ms = 60,
      .work = {{"void at::native::(anonymous namespace)::copy<float>(int, float*)", 6, 45}, {"gemm", 3, 15}}};
  out.is_captured = true;
  out.graphs.regions = {{"h.0", {"aten::add", "aten::mul", "aten::mul"}},
                        {"h.1", {"aten::add", "aten::mul", "aten::mul"}},
                        {"", {"aten::exp", "aten::neg"}}};
  out.graphs.left = {{{"aten::gelu", "stands alone between others"}, 12},
                     {{"aten::embedding", "of a kind that no region contains"}, 2}};
  out.graphs.replaced = {{"dslaunch::linear", 48}, {"dslaunch::cross_entropy", 1}};
  out.graphs.switched_off = {"chunked_cross_entropy"};
  out.programs = {.num_groups = 3, .num_regions = 2, .why_not = {"it has no tensors"}};
  out.notes = {"a note"};
  return out;
}

StepReport some_report() {
  StepReport report;
  report.model = "gpt.pt";
  report.device = at::Device("cuda:0");
  report.compute_dtype = report.gemm_dtype = at::kBFloat16;
  report.micro_batch = 16;
  report.gemm_rate = 800e12;
  report.own = some_measurement();
  return report;
}

}  // namespace

TEST_CASE("bench step reports a step, its kernels and what was fused", "[runtime][engine][bench]") {
  CHECK(report_text(some_report(), 80) ==
        "gpt.pt: 163,037,184 parameters\n"
        "bf16, ZeRO 0, micro batch 16 x 1 accumulation step, on cuda:0\n"
        "\n"
        "step        31.50 ms, the median of 4 after 10 of warm-up (30.00 to 35.00)\n"
        "input       0.45 ms of it (1.4 %): 31.05 ms with batches that are held on the\n"
        "            device\n"
        "throughput  520k tokens/s, 508 samples/s\n"
        "arithmetic  400 TFLOP/s (4 TFLOP forward, 8.6 TFLOP backward)\n"
        "            50.0 % of what large bf16 matrix products reach here: 800 TFLOP/s\n"
        "memory      peak 9.00 GiB allocated, 10.00 GiB reserved: 10.0 % fragmentation\n"
        "first step  ended 1.06 s after loading began\n"
        "captured    yes: steps are replayed as one CUDA graph\n"
        "note        a note\n"
        "replaced    1 cross_entropy, 48 linear\n"
        "passes off  chunked_cross_entropy\n"
        "\n"
        "fused regions: 3 groups of 8 operators in a forward, 2 kernels each way\n"
        "  times  first in                  operators\n"
        "      2  h.0                        3: add, mul x2\n"
        "      1  the model itself           2: exp, neg\n"
        "not in a region, though of a kind that can be\n"
        "  times  operator                  why\n"
        "     12  gelu                      stands alone between others\n"
        "      1  groups                    it has no tensors\n"
        "of kinds that no region contains\n"
        "            2 embedding\n"
        "\n"
        "kernels and copies of a step\n"
        "2 steps of 32.00 ms were profiled; the device is busy 30.00 ms of it\n"
        "        ms   share   calls  kernel\n"
        "    22.500  75.0 %       3  copy<float>\n"
        "     7.500  25.0 %     1.5  gemm\n");
}

TEST_CASE("bench step compares with eager TorchScript, and says that it is that", "[runtime][engine][bench]") {
  auto report = some_report();
  report.torch = some_measurement();
  report.torch->step_ms = {63};
  report.torch->memory.allocated = 18 * kGiB;
  CHECK_THAT(report_text(report, 80),
             Contains("against eager TorchScript: this engine, update and data, without graph passes,\n") &&
                 Contains("\ndslaunch       31.50     30.00 to 35.00       520k      400    50.0 %         9\n") &&
                 Contains("\nTorchScript    63.00     63.00 to 63.00       260k      200    25.0 %        18\n") &&
                 Contains("\ndslaunch is 2.00 times as fast as eager TorchScript, with 0.50 times its memory\n"));
}

TEST_CASE("bench step shows 20 kernels, no name longer than the line, and the rest as one",
          "[runtime][engine][bench]") {
  auto report = some_report();
  auto& work = report.own.profile.work;
  work.clear();
  for (int i = 0; i < 25; ++i) work.push_back({std::to_string(i) + std::string(300, 'k'), 2, 1});
  for (const size_t width : {80, 120}) {
    const std::string text = report_text(report, width);
    CHECK_THAT(text, Contains("     2.500  20.0 %       5  5 other kernels\n"));
    std::istringstream lines(text.substr(text.find("kernels and copies")));
    size_t longest = 0;
    for (std::string line; std::getline(lines, line);) longest = std::max(longest, line.size());
    CHECK(longest == width);
  }
}

TEST_CASE("bench step says why there are no kernels and no capture", "[runtime][engine][bench]") {
  auto report = some_report();
  report.own.profile.work.clear();
  report.own.is_captured = false;
  report.own.why_not_captured = "the model draws random numbers on the host";
  CHECK_THAT(report_text(report, 80), Contains("captured    no: the model draws random numbers on the host\n") &&
                                          Contains("no kernels were recorded: the driver does not let CUPTI profile"));
  report.device = at::kCPU;
  report.own.memory.reserved = 0;
  report.own.graphs = {.why_no_regions = "on CPUs operators run one by one"};
  report.own.tokens_per_step = 0;
  CHECK_THAT(report_text(report, 80),
             Contains("memory      peak 9.00 GiB in tensors, 3.00 GiB of the whole process\n") &&
                 Contains("\nfused regions: none; on CPUs operators run one by one\n") &&
                 Contains("throughput  508 samples/s\n"));
}

TEST_CASE("bench step --json has every number", "[runtime][engine][bench]") {
  auto report = some_report();
  const auto document = nlohmann::json::parse(report_json(report));
  const auto& own = document["dslaunch"];
  CHECK(document["eager_torchscript"].is_null());
  CHECK(document["matrix_product_flops_per_second"] == 800e12);
  CHECK(own["median_ms"] == 31.5);
  CHECK(own["step_ms"] == nlohmann::json{32, 31, 30, 35});
  CHECK(own["held_ms"] == nlohmann::json{31, 30.1, 31.1, 33});
  CHECK(own["flops_per_step"] ==
        nlohmann::json{{"forward", 4'000'000'000'000}, {"backward", 8'600'000'000'000}, {"update", 0}});
  CHECK(own["flops_per_second"] == Approx(400e12));
  CHECK(own["share_of_matrix_products"] == Approx(0.5));
  CHECK(own["fragmentation"] == Approx(0.1));
  CHECK(own["profile"]["work"][1] == nlohmann::json{{"name", "gemm"}, {"calls", 3}, {"ms", 15}});
  CHECK(own["captured"] == true);
  CHECK(own["fused_regions"].size() == 3);
  CHECK(own["operators_left"].size() == 2);
  CHECK(own["operators_left"][1] ==
        nlohmann::json{{"operator", "aten::gelu"}, {"reason", "stands alone between others"}, {"count", 12}});
  report.torch = report.own;
  CHECK(nlohmann::json::parse(report_json(report))["eager_torchscript"]["median_ms"] == 31.5);
}

TEST_CASE("kernels of one name are added, and the device is busy while any of them runs", "[runtime][engine][bench]") {
  const auto profile = profile_of({{"a", DeviceWork::kCompute, 7, 0, 1000},
                                   {"b", DeviceWork::kCopy, 8, 500, 3000},
                                   {"a", DeviceWork::kCompute, 7, 4000, 6000}});
  REQUIRE(profile.work.size() == 2);
  CHECK(profile.work[0].name == "a");
  CHECK(profile.work[0].num_calls == 2);
  CHECK(profile.work[0].milliseconds == Approx(3));
  CHECK(profile.work[1].milliseconds == Approx(2.5));
  CHECK(profile.busy_ms == Approx(5));
  CHECK(profile_of({}).work.empty());
}
