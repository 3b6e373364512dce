// The peak of real steps, counted by the allocator of CPU tensors, beside the plan's: its state and the activations
// that it measures.
#include "runtime/engine/plan/measure_activations.hpp"

#include <catch2/catch.hpp>

#include "runtime/engine/plan/plan_rank.hpp"
#include "runtime/telemetry/counting_allocator.hpp"
#include "support/job_files.hpp"
#include "support/job_rank.hpp"
#include "support/mesh_threads.hpp"

using namespace dslaunch;
using namespace dslaunch::runtime;
using namespace dslaunch::runtime::engine;
using memory_plan::StepPoint;
using test::json;

namespace {

constexpr int64_t kRows = 96, kWidth = 128, kClasses = 1024;

// Four blocks and a head whose logits and weight are most of it all.
torch::jit::Module make_classifier() {
  const auto block = [](uint64_t seed) {
    return test::compile({"WideBlock",
                          "def forward(self, x):\n    return torch.tanh(torch.matmul(x, self.weight)) + x\n",
                          {{"weight", test::random_weight({kWidth, kWidth}, seed, 0.1)}}});
  };
  const auto head = test::compile({"Head",
                                   "def forward(self, x):\n    return torch.matmul(x, self.weight)\n",
                                   {{"weight", test::random_weight({kWidth, kClasses}, 9, 0.1)}}});
  const auto blocks = test::compile({.type = "Blocks",
                                     .source = "def forward(self, x):\n    return x\n",
                                     .children = {{"0", block(1)}, {"1", block(2)}, {"2", block(3)}, {"3", block(4)}}});
  return test::compile({"Classifier",
                        R"(
    def forward(self, x):
        x = getattr(self.blocks, "0").forward(x)
        x = getattr(self.blocks, "1").forward(x)
        x = getattr(self.blocks, "2").forward(x)
        x = getattr(self.blocks, "3").forward(x)
        return self.head.forward(x)
  )",
                        {},
                        {},
                        {{"blocks", blocks}, {"head", head}}});
}

struct ClassifierJob : test::JobFiles {
  ClassifierJob() : JobFiles(make_classifier()) {
    test::write_samples(folder / "classes.safetensors", {{"x", test::random_values({6 * kRows, kWidth}, 100)},
                                                         {"y", at::arange(6 * kRows) % kClasses}});
  }
  json config_of(int stage, const json& zero, const json& more) const {
    const json section = test::with({{"stage", stage}, {"stage3_param_persistence_threshold", 100}}, zero);
    return config({{"zero_optimization", section},
                   {"train_batch_size", kRows},
                   {"loss", "cross_entropy"},
                   {"data", {{"train", folder / "classes.safetensors"}}}},
                  more);
  }
};

// Of one rank, beyond what was there before its engine.
int64_t measure_peak(const std::string& model, const json& config, const comm::Groups& groups) {
  auto& allocator = CountingAllocator::install();
  const int64_t before = allocator.read().now;
  test::JobRank rank(model, config, groups);
  allocator.reset_peak();
  for (int step = 0; step < 3; ++step) rank.step();
  return allocator.read().peak - before;
}

}  // namespace

TEST_CASE("the planned peak is that of real steps, at every stage", "[runtime][engine][plan]") {
  struct Setting {
    int stage;
    json zero;
  };
  const json on_host{{"device", "cpu"}};
  const Setting setting =
      GENERATE_COPY(Setting{0, {}}, Setting{1, {}}, Setting{1, {{"offload_optimizer", on_host}}}, Setting{2, {}},
                    Setting{2, {{"offload_optimizer", on_host}}}, Setting{3, {}},
                    Setting{3, {{"offload_optimizer", on_host}}}, Setting{3, {{"offload_param", on_host}}},
                    Setting{3, {{"offload_param", on_host}, {"offload_optimizer", on_host}}});
  const json precision = GENERATE(json::object(), json{{"bf16", {{"enabled", true}}}});
  const int accumulation = GENERATE(1, 2);
  const ClassifierJob job;
  const json batch{{"gradient_accumulation_steps", accumulation}, {"train_batch_size", accumulation * kRows}};
  const json config = job.config_of(setting.stage, setting.zero, test::with(precision, batch));
  INFO(config.dump());
  test::run_mesh({.data = 1}, [&](const comm::Groups& groups) {
    const auto loaded = test::load_config(config, 1).config;
    const auto points = plan::measure_activations(job.model, loaded, device::Device(at::kCPU), groups.world);
    const auto model = plan::planned_model(*setup::load_model(job.model, loaded, device::Device(at::kCPU)));
    const auto memory = plan::plan_rank(model, loaded, {.device = at::kCPU});
    const auto planned = static_cast<double>(
        memory_plan::peak_of(memory, {.has_gpus = true}, points, /*accumulates=*/accumulation > 1).gpu_bytes);
    const auto measured = static_cast<double>(measure_peak(job.model, config, groups));
    INFO("activations at their most " << most_activations(points));
    CHECK(planned / measured == Approx(1).margin(0.03));
  });
}

TEST_CASE("activations are measured at the times of a step", "[runtime][engine][plan]") {
  const ClassifierJob job;
  const json config = job.config_of(1, json::object(), json::object());
  test::run_mesh({.data = 1}, [&](const comm::Groups& groups) {
    const auto points = plan::measure_activations(job.model, test::load_config(config, 1).config,
                                                  device::Device(at::kCPU), groups.world);
    const auto logits = static_cast<double>(kRows * kClasses * 4);
    REQUIRE(points.size() > 5);
    // The logits, their log-softmax and its gradient are there before any gradient of a parameter.
    CHECK(points[0].gradient_share == 0);
    CHECK(static_cast<double>(points[0].activation_bytes) > 2.5 * logits);
    CHECK(static_cast<double>(points[0].activation_bytes) ==
          Approx(static_cast<double>(most_activations(points))).epsilon(0.01));
    CHECK(points.back().gradient_share == 1);
    CHECK(static_cast<double>(points.back().activation_bytes) < 0.5 * logits);
    for (const StepPoint& point : points) CHECK((point.gradient_share >= 0 && point.gradient_share <= 1));
  });
}
