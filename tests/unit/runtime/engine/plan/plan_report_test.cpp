// The settings that a plan shows side by side, which of them fit, and how they are printed.
#include "runtime/engine/plan/plan_report.hpp"

#include <catch2/catch.hpp>
#include <nlohmann/json.hpp>

#include "support/expect_error.hpp"
#include "support/temp_dir.hpp"
#include "two_matrices.hpp"

using namespace dslaunch;
using namespace dslaunch::runtime;
using namespace dslaunch::runtime::engine;
using namespace dslaunch::runtime::engine::plan;
using Catch::Matchers::Contains;
using config::OffloadDevice;
using test::kGiB;

namespace {

JobSource job_of(const test::TempDir& dir, const std::string& text, int world_size = 1) {
  dir.write("ds.json", text);
  return {dir / "ds.json", {}, world_size};
}

PlanReport report_of(const JobSource& job, at::Device device, memory_plan::Capacity capacity) {
  PlanReport report;
  report.model = "m.pt";
  report.num_parameters = report.num_trained = 1 << 28;
  report.num_units = 2;
  report.ranks_of_node = report.num_data_ranks = job.world_size;
  report.device = device;
  capacity.ranks_of_host = job.world_size;
  capacity.has_gpus = !device.is_cpu();
  report.capacity = capacity;
  report.settings = plan_settings({{test::two_matrices()}}, job, device);
  return report;
}

const PlannedSetting& find(const PlanReport& report, int stage, OffloadDevice optimizer, OffloadDevice parameters) {
  for (const auto& each : report.settings) {
    if (each.stage == stage && each.optimizer == optimizer && each.parameters == parameters) return each;
  }
  throw std::logic_error("no such setting");
}

}  // namespace

TEST_CASE("a plan says what tensor ranks split, and why the rest stays whole", "[runtime][engine][plan]") {
  const test::TempDir dir;
  auto report = report_of(job_of(dir, R"({"tensor_parallel": {"size": 2}})", 2), at::kCPU, {{}, 8 * kGiB});
  report.placements = model::PlacementReport{.ranks = 2,
                                             .gemms = {{"a.weight", "column", 600},
                                                       {"b.weight", "row", 300},
                                                       {"c.weight", "", 40, "its heads are not alike"},
                                                       {"d.weight", "", 20, "a loop reads it"},
                                                       {"e.weight", "", 40, "its heads are not alike"}},
                                             .notes = {"'Router' stays whole: it writes to its input"}};
  report.num_parameters_of_rank = 1234;
  const std::string text = report_text(report);
  CHECK_THAT(text, Contains(", 2 tensor ranks: "));
  CHECK_THAT(text, Contains("2 ranks split 2 of 5 GEMMs (90.0 % of their parameters); a rank has 1,234 parameters\n"
                            "8.0 % of the parameters of GEMMs stay whole: 'c.weight' and 1 more: its heads are not "
                            "alike\n2.0 % of the parameters of GEMMs stay whole: 'd.weight': a loop reads it\n"
                            "'Router' stays whole: it writes to its input\n"));
  const auto document = nlohmann::json::parse(report_json(report));
  CHECK(document["tensor_ranks"] == 2);
  CHECK(document["placements"]["split_elements"] == 900);
  CHECK(document["placements"]["gemms"][3]["reason"] == "a loop reads it");
}

TEST_CASE("a plan shows the stages and offload choices that the config accepts", "[runtime][engine][plan]") {
  const test::TempDir dir;
  const auto settings_of = [&](const std::string& text, int ranks = 1) {
    std::vector<std::string> out;
    for (const auto& each : list_settings(job_of(dir, text, ranks))) {
      out.push_back(std::to_string(each.stage) + " " + text_of(each.optimizer) + " " + text_of(each.parameters) +
                    (each.is_own ? " *" : ""));
    }
    return out;
  };
  CHECK(settings_of(R"({"zero_optimization": {"stage": 2}})") ==
        std::vector<std::string>{"0 none none", "1 none none", "1 cpu none", "2 none none *", "2 cpu none",
                                 "3 none none", "3 cpu none", "3 none cpu", "3 cpu cpu", "3 nvme cpu", "3 nvme nvme"});
  CHECK(settings_of(R"({"zero_optimization": {"stage": 1}, "optimizer": {"type": "Lamb"}})") ==
        std::vector<std::string>{"0 none none", "1 none none *", "2 none none", "3 none none", "3 none cpu"});
  CHECK(settings_of(R"({"pipeline": {"stages": 2}})", 2) ==
        std::vector<std::string>{"0 none none *", "1 none none", "1 cpu none"});
  const auto own = settings_of(
      R"({"zero_optimization": {"stage": 2, "offload_optimizer": {"device": "nvme", "nvme_path": "/nowhere"}}})");
  CHECK(std::count(own.begin(), own.end(), "2 nvme none *") == 1);
  CHECK(own.size() == 12);
  const auto alias = settings_of(R"({"zero_optimization": {"stage": 2, "cpu_offload": true}})");
  CHECK(std::count(alias.begin(), alias.end(), "2 cpu none *") == 1);
  CHECK(alias.size() == 11);
}

TEST_CASE("a config that is no config is refused", "[runtime][engine][plan]") {
  const test::TempDir dir;
  test::expect_error(ExitCode::kBadInput, {"unknown key 'stag'"},
                     [&] { list_settings(job_of(dir, R"({"zero_optimization": {"stag": 1}})")); });
}

// By hand: 2^28 elements are 0.5 GiB in bf16, 1 GiB in fp32.
TEST_CASE("the tiers of a bf16 job with Adam", "[runtime][engine][plan]") {
  using memory_plan::Tier;
  using memory_plan::Use;
  const test::TempDir dir;
  const auto job = job_of(
      dir, R"({"bf16": {"enabled": true}, "zero_optimization": {"stage": 1, "offload_param": {"max_in_cpu": 0}}})", 4);
  const auto report = report_of(job, at::kCUDA, {});
  const auto& replicated = find(report, 0, OffloadDevice::kNone, OffloadDevice::kNone).memory;
  CHECK(replicated.of(Tier::kDevice, Use::kParameters) == kGiB / 2);
  CHECK(replicated.of(Tier::kDevice, Use::kGradients) == kGiB / 2);
  CHECK(replicated.of(Tier::kDevice, Use::kMasters) == kGiB);
  CHECK(replicated.of(Tier::kDevice, Use::kMoments) == 2 * kGiB);
  const auto& sharded = find(report, 3, OffloadDevice::kNone, OffloadDevice::kNone).memory;
  CHECK(sharded.of(Tier::kDevice, Use::kParameters) == kGiB / 8);
  CHECK(sharded.of(Tier::kDevice, Use::kGradients) == kGiB / 8);
  CHECK(sharded.of(Tier::kDevice, Use::kSlots) == kGiB / 2);    // both units
  CHECK(sharded.of(Tier::kDevice, Use::kBuckets) == kGiB / 2);  // two of a unit
  const auto& in_files = find(report, 3, OffloadDevice::kFile, OffloadDevice::kFile).memory;
  CHECK(in_files.total(Tier::kFile) == kGiB / 8 + 3 * kGiB / 4 + kGiB / 8);  // parameters, state, gradients
  // Four sub-groups of 2^24 elements with master, two moments and a gradient, and two blocks each for ranges of state
  // and of parameters.
  CHECK(in_files.total(Tier::kHost) == kGiB + 4 * ((8 << 20) + 4096));
  // Four blocks of 2^24 elements on their way to the device or to files, 32 of 8 MiB on their way to files, and a
  // buffer for each unit's parameters.
  CHECK(in_files.total(Tier::kPageLocked) == kGiB / 4 + kGiB / 4 + kGiB / 8);
  CHECK(in_files.total(Tier::kDevice) == kGiB);
}

TEST_CASE("a plan says what fits, and by how much it does not", "[runtime][engine][plan]") {
  const test::TempDir dir;
  const auto job = job_of(dir, R"({"bf16": {"enabled": true}, "zero_optimization": {"stage": 1}})");
  auto report = report_of(job, at::kCUDA, {.gpu_bytes = 7 * kGiB / 2, .host_bytes = 3 * kGiB});
  CHECK_THAT(report_text(report), Contains("*    1  none       none              0.50       0.50       3.00") &&
                                      Contains("no: GPU 0.50 over") &&
                                      // 64 MiB each of staged gradients and parameters, which are not page-locked
                                      Contains("no: host 0.81 over") &&
                                      Contains("GPU memory 3.50 GiB, host memory 3.00 GiB; activations come on top"));
  report.capacity.gpu_bytes = 9 * kGiB / 2;
  report.activations = {memory_plan::points_of(kGiB), "given"};  // in the place of gradients
  CHECK(fit_of(peak_of(report.settings[1], report), report.capacity) == memory_plan::Fit::kYes);
  report.activations = {memory_plan::points_of(2 * kGiB), "given"};
  const auto peak = peak_of(report.settings[1], report);
  CHECK(peak.gpu_bytes == 11 * kGiB / 2);
  CHECK(describe_excess(peak, report.capacity) == "needs 5.50 GiB on each GPU, which has 4.50 GiB");
  report.capacity.gpu_bytes.reset();
  CHECK(fit_of(peak_of(report.settings[1], report), report.capacity) == memory_plan::Fit::kUnknown);
  CHECK_THAT(report_text(report), Contains("GPU memory not known (--gpu_memory SIZE)"));
}

TEST_CASE("a plan of a small model is in a unit in which it has digits", "[runtime][engine][plan]") {
  const test::TempDir dir;
  auto report = report_of(job_of(dir, "{}"), at::kCPU, {.host_bytes = kGiB});
  CHECK_THAT(report_text(report), Contains("\nGiB of each rank; "));
  for (auto& setting : report.settings) setting.memory = {};
  report.settings[0].memory.add(memory_plan::Tier::kDevice, memory_plan::Use::kParameters, 1536 << 10);
  CHECK_THAT(report_text(report), Contains("\nMiB of each rank; ") && Contains("  1.50  "));
}

TEST_CASE("a plan says whose memory it takes for that of several hosts", "[runtime][engine][plan]") {
  PlanReport report{.num_nodes = 2, .capacity = {.host_bytes = kGiB}, .is_host_memory_of_this_machine = true};
  CHECK(host_memory_text(report) ==
        "host memory 1.00 GiB (what this machine has available; for other hosts --host_memory SIZE)");
  report.is_host_memory_of_this_machine = false;
  CHECK(host_memory_text(report) == "host memory 1.00 GiB");
}

TEST_CASE("on CPU ranks everything is in the memory of the host", "[runtime][engine][plan]") {
  const test::TempDir dir;
  const auto job = job_of(dir, R"({"zero_optimization": {"stage": 1}})", 2);
  const auto report = report_of(job, at::kCPU, {.host_bytes = 7 * kGiB});
  const auto& own = find(report, 1, OffloadDevice::kNone, OffloadDevice::kNone);
  const auto peak = peak_of(own, report);
  CHECK(peak.gpu_bytes == 0);
  CHECK(peak.host_bytes ==
        7 * kGiB);  // of two ranks: parameters 1, gradients 1 / 2, moments 2 / 2, two buckets of 1 / 2
  CHECK_THAT(report_text(report), Contains("memory of the rank") && !Contains("GPU"));
}

TEST_CASE("gradients stay beside activations while micro batches are accumulated", "[runtime][memory_plan]") {
  memory_plan::RankMemory memory;
  memory.add(memory_plan::Tier::kDevice, memory_plan::Use::kGradients, 10);
  memory.add(memory_plan::Tier::kDevice, memory_plan::Use::kParameters, 5);
  const auto peak = [&](const std::vector<memory_plan::StepPoint>& points, bool accumulates) {
    return memory_plan::peak_of(memory, {}, points, accumulates).gpu_bytes;
  };
  CHECK(peak({}, false) == 15);
  CHECK(peak(memory_plan::points_of(7), false) == 15);
  CHECK(peak(memory_plan::points_of(12), false) == 17);
  CHECK(peak(memory_plan::points_of(7), true) == 22);
}

TEST_CASE("what exists at the same time decides the peak of a step", "[runtime][memory_plan]") {
  using memory_plan::Use;
  memory_plan::RankMemory memory;
  const auto add = [&](Use use, int64_t bytes) { memory.add(memory_plan::Tier::kDevice, use, bytes); };
  const auto peak = [&](const std::vector<memory_plan::StepPoint>& points, bool accumulates) {
    return memory_plan::peak_of(memory, {}, points, accumulates).gpu_bytes;
  };
  add(Use::kParameters, 1000);
  add(Use::kGradients, 100);
  const std::vector<memory_plan::StepPoint> step{{70, 0}, {80, 0.1}, {40, 0.6}, {5, 1}};
  CHECK(peak(step, false) == 1000 + 40 + 60 + 5);  // at the end: 5 and all gradients
  CHECK(peak({{70, 0}, {80, 0.4}, {0, 1}}, false) == 1000 + 80 + 40);
  CHECK(peak({{70, 0}, {80, 0.4}, {0, 1}}, true) == 1000 + 80 + 100);
  // The first buckets come with the first gradient, copies of an update after backward.
  add(Use::kBackwardBuckets, 30);
  CHECK(peak({{200, 0}, {150, 0.1}, {0, 1}}, false) == 1000 + 200);
  CHECK(peak({{200, 0}, {175, 0.1}, {0, 1}}, false) == 1000 + 175 + 10 + 30);
  CHECK(peak({}, false) == 1000 + 100 + 30);
  add(Use::kUpdateCopies, 45);
  CHECK(peak({}, false) == 1000 + 100 + 45);
  CHECK(peak({{200, 0}, {175, 0.1}, {0, 1}}, false) == 1000 + 175 + 10 + 30);
}

TEST_CASE("a setting with whole logits is planned for the units that it has then", "[runtime][engine][plan]") {
  const test::TempDir dir;
  const auto job = job_of(dir, R"({"bf16": {"enabled": true}, "zero_optimization": {"stage": 1}})");
  auto report = report_of(job, at::kCUDA, {});
  PlannedModel in_root = test::two_matrices();
  in_root.table.units = {{"", {0, 1}}};
  for (auto& parameter : in_root.table.parameters) parameter.unit = 0;
  report.settings = plan_settings({{in_root}, {test::two_matrices()}}, job, at::kCUDA);
  report.activations = {memory_plan::points_of(10 * kGiB), "measured", memory_plan::points_of(30 * kGiB)};
  for (const auto& setting : report.settings) {
    INFO(setting.stage);
    const auto buckets = setting.memory.of(memory_plan::Tier::kDevice, memory_plan::Use::kBuckets);
    if (setting.stage >= 2) CHECK(buckets == (setting.stage == 3 ? kGiB / 2 : kGiB));  // two of the largest unit
    const auto peak = peak_of(setting, report).gpu_bytes;
    CHECK((setting.stage == 3 ? peak > 30 * kGiB : peak < 20 * kGiB));
    CHECK(peak > 10 * kGiB);
  }
  report.activations->with_whole_logits.clear();
  CHECK(peak_of(report.settings.back(), report).gpu_bytes < 20 * kGiB);
}

TEST_CASE("the JSON document of a plan", "[runtime][engine][plan]") {
  const test::TempDir dir;
  const auto job = job_of(dir, R"({"bf16": {"enabled": true}, "zero_optimization": {"stage": 3}})");
  const auto document =
      nlohmann::json::parse(report_json(report_of(job, at::kCUDA, {.gpu_bytes = 4 * kGiB, .host_bytes = kGiB})));
  CHECK(document["gpu_memory"] == 4 * kGiB);
  CHECK(document["activations"].is_null());
  CHECK(document["settings"].size() == 11);
  const auto& own = document["settings"][5];
  CHECK(own["is_of_config"] == true);
  CHECK(own["bytes_per_rank"]["device"]["moments"] == 2 * kGiB);
  CHECK(own["fits"] == false);
  CHECK(own["reason"] == "needs 4.50 GiB on each GPU, which has 4.00 GiB");
}
