// Training on pipelines of stages (threads) beside one rank that has the whole model and all samples.
#include <ATen/ATen.h>

#include <catch2/catch.hpp>
#include <map>

#include "runtime/engine/setup/load_model.hpp"
#include "runtime/engine/setup/training_data.hpp"
#include "runtime/engine/step/engine.hpp"
#include "support/chain_net.hpp"
#include "support/engine_run.hpp"
#include "support/mesh_threads.hpp"
#include "support/temp_dir.hpp"

using namespace dslaunch;
using namespace dslaunch::runtime;
using namespace dslaunch::runtime::engine::setup;
using namespace dslaunch::runtime::engine::step;

namespace {

constexpr int kSteps = 3;
constexpr int64_t kMicroBatch = 2;

struct Case {
  comm::Mesh mesh;
  int64_t micro_batches = 4;
  int zero_stage = 0;
  config::PipelineSchedule schedule = config::PipelineSchedule::k1F1B;
  bool tied = false;
  double clipping = 0.5;
  bool recomputes = false;
  bool offloads = false, delays = false;  // the optimizer's state; its updates
};

config::JobConfig config_of(const Case& c) {
  auto config = test::chain_config(c.mesh.data, c.mesh.pipe, kMicroBatch, c.micro_batches);
  config.gradient_clipping = c.clipping;
  config.zero.stage = c.zero_stage;
  if (c.offloads) config.zero.offload_optimizer.device = config::OffloadDevice::kHost;
  config.zero.offload_optimizer.delayed_update = c.delays;
  config.pipeline.schedule = c.schedule;
  return config;
}

using RankRun = test::EngineRun;

// By rank of the world.
std::vector<RankRun> run_on(const Case& c) {
  test::TempDir folder;
  const std::string path = folder / "net.pt";
  test::chain_net(c.tied).save(path);
  const auto config = config_of(c);
  std::vector<std::unique_ptr<model::Model>> models;  // loaded one by one: that is for one thread
  for (int rank = 0; rank < c.mesh.size(); ++rank) {
    models.push_back(load_part(path, config, device::Device(at::kCPU), {c.mesh.pipe, c.mesh.coordinates(rank).pipe}));
    if (c.recomputes) models.back()->runnable->set_recomputation({});
  }
  std::vector<RankRun> runs(models.size());
  test::run_mesh(c.mesh, [&](const comm::Groups& groups) {
    const auto rank = static_cast<size_t>(groups.world.rank());
    runs[rank] = test::run_engine(groups, *models[rank], config, kSteps);
  });
  return runs;
}

// Each element of each state, from its one owner.
std::map<std::pair<std::string, std::string>, at::Tensor> state_of(const std::vector<RankRun>& runs) {
  std::map<std::pair<std::string, std::string>, std::map<int64_t, at::Tensor>> parts;
  for (const auto& run : runs) {
    for (const auto& owned : run.state) {
      CHECK(parts[{owned.parameter, owned.state}].emplace(owned.begin, owned.values).second);
    }
  }
  std::map<std::pair<std::string, std::string>, at::Tensor> out;
  for (const auto& [key, by_begin] : parts) {
    std::vector<at::Tensor> values;
    for (const auto& [begin, part] : by_begin) values.push_back(part);
    out[key] = at::cat(values);
  }
  return out;
}

// A step of a pipeline adds up in the order of one rank with the whole model, except for the norm, which is a sum over
// the stages, and for tied parameters: over the micro batches of each stage first.
void check_same(const Case& c) {
  INFO("pipe " << c.mesh.pipe << ", data " << c.mesh.data << ", micro batches " << c.micro_batches << ", ZeRO "
               << c.zero_stage << ", tied " << c.tied << ", offloads " << c.offloads << ", delays " << c.delays);
  Case alone_case = c;
  alone_case.mesh.pipe = 1;
  const auto alone = run_on(alone_case), runs = run_on(c);
  for (const auto& run : runs) {
    for (size_t i = 0; i < kSteps; ++i) {
      CHECK(run.steps[i].loss == Approx(alone[0].steps[i].loss).epsilon(1e-6));
      CHECK(run.steps[i].grad_norm == Approx(alone[0].steps[i].grad_norm).epsilon(1e-6));
    }
    CHECK(run.evaluation.loss == Approx(alone[0].evaluation.loss).epsilon(1e-6));
    CHECK(run.evaluation.num_samples == alone[0].evaluation.num_samples);
  }
  const auto state = state_of(runs), expected = state_of(alone);
  CHECK(state.size() == expected.size());
  for (const auto& [key, values] : expected) {
    INFO(key.first << " " << key.second);
    REQUIRE(state.count(key) == 1);
    if (c.clipping == 0 && !c.tied) {
      CHECK(at::equal(state.at(key), values));
    } else {
      CHECK(at::allclose(state.at(key), values, 1e-5, 1e-7));
    }
  }
}

// Hands out the initial values, and notes the units whose gradients have come.
struct InitialParameters : UnitParameters {
  explicit InitialParameters(model::Model& model) : model(model) {}
  UnitValues acquire(int unit, UnitCall) override {
    UnitValues out;
    for (int parameter : model.facts.table.units[static_cast<size_t>(unit)].parameters) {
      out.parameters.push_back(model.initial.value(parameter).detach());
    }
    return out;
  }
  void release(int) override {}
  void prepare_backward(int) override {}
  void take_gradients(int unit, std::vector<at::Tensor> gradients) override {
    CHECK(gradients.size() == model.facts.table.units[static_cast<size_t>(unit)].parameters.size());
    for (const auto& gradient : gradients) CHECK(gradient.defined());
    taken.push_back(unit);
  }
  DeferredGradients* deferred_gradients() override { return defers ? &deferred : nullptr; }

  model::Model& model;
  bool defers = true;
  DeferredGradients deferred;
  std::vector<int> taken;
};

}  // namespace

TEST_CASE("the blocks of a stage under zb-h1 leave their weight gradients for later, those of 1f1b do not",
          "[runtime][engine][pipeline]") {
  const auto schedule = GENERATE(config::PipelineSchedule::k1F1B, config::PipelineSchedule::kZbH1);
  const bool recomputes = GENERATE(false, true);
  const bool writes = GENERATE(false, true);  // kernels.weight_gradient
  const bool defers = schedule == config::PipelineSchedule::kZbH1;
  test::TempDir folder;
  const std::string path = folder / "net.pt";
  test::chain_net(/*tied=*/false).save(path);
  auto config = config_of({.mesh = {1, 2, 1}, .schedule = schedule});
  config.kernels.weight_gradient = writes;
  const auto model = load_part(path, config, device::Device(at::kCPU), {.num_stages = 2, .stage = 0});
  if (recomputes) model->runnable->set_recomputation({});
  InitialParameters parameters(*model);
  parameters.defers = defers || !writes;  // the engine: only where the schedule splits backwards
  model->runnable->set_unit_parameters(&parameters);
  const auto num_blocks = model->facts.table.units.size() - 1;
  REQUIRE(num_blocks > 0);
  const at::Tensor ids = at::tensor({0, 3, 1, 4, 2, 2}, at::kLong).view({2, 3});
  const auto output = model->runnable->run_stage({ids}, {});
  parameters.deferred.open();
  output.carried.tensors.at(0).sum().backward();
  const auto work = parameters.deferred.close();
  CHECK(work.size() == (defers ? num_blocks : 0));
  CHECK(parameters.taken.size() == (defers ? 1 : num_blocks + 1));  // the embedding's comes with the inputs'
  CHECK(parameters.taken.back() == 0);
  for (const auto& part : work) part();
  CHECK(parameters.taken.size() == num_blocks + 1);
}

TEST_CASE("a pipeline trains as one rank with the whole model, bit for bit", "[runtime][engine][pipeline]") {
  const comm::Mesh mesh = GENERATE(comm::Mesh{1, 2, 1}, comm::Mesh{1, 3, 1}, comm::Mesh{1, 4, 1});
  const int64_t micro_batches = GENERATE(1, 3, 4);
  const auto schedule =
      GENERATE(config::PipelineSchedule::k1F1B, config::PipelineSchedule::kGPipe, config::PipelineSchedule::kZbH1);
  check_same({.mesh = mesh, .micro_batches = micro_batches, .schedule = schedule, .clipping = 0});
}

TEST_CASE("a tied weight trains in both stages as in one model", "[runtime][engine][pipeline]") {
  const comm::Mesh mesh = GENERATE(comm::Mesh{1, 2, 1}, comm::Mesh{1, 3, 1}, comm::Mesh{2, 2, 1});
  const double clipping = GENERATE(0.0, 0.05);
  check_same({.mesh = mesh, .tied = true, .clipping = mesh.data == 1 ? clipping : 0.05});
}

TEST_CASE("pipelines beside each other divide the samples", "[runtime][engine][pipeline]") {
  const int zero_stage = GENERATE(0, 1);
  const bool tied = GENERATE(false, true);
  check_same({.mesh = {2, 2, 1}, .zero_stage = zero_stage, .tied = tied});
  check_same({.mesh = {3, 2, 1}, .micro_batches = 1, .zero_stage = zero_stage, .tied = tied});
}

TEST_CASE("deferred weight gradients train as one rank does", "[runtime][engine][pipeline]") {
  constexpr auto kZbH1 = config::PipelineSchedule::kZbH1;
  const bool tied = GENERATE(false, true);
  SECTION("with recomputed blocks") {
    check_same({.mesh = {1, 3, 1}, .schedule = kZbH1, .tied = tied, .clipping = 0, .recomputes = true});
  }
  SECTION("on several data ranks") {
    const int zero_stage = GENERATE(0, 1);
    const int64_t micro_batches = GENERATE(1, 4);
    check_same({.mesh = {2, 2, 1},
                .micro_batches = micro_batches,
                .zero_stage = zero_stage,
                .schedule = kZbH1,
                .tied = tied,
                .recomputes = tied});
  }
}

TEST_CASE("an optimizer that is offloaded updates the stages as the whole model", "[runtime][engine][pipeline]") {
  const bool delays = GENERATE(false, true);
  const auto schedule = GENERATE(config::PipelineSchedule::k1F1B, config::PipelineSchedule::kZbH1);
  SECTION("bit for bit") {
    const comm::Mesh mesh = GENERATE(comm::Mesh{1, 2, 1}, comm::Mesh{1, 4, 1});
    check_same(
        {.mesh = mesh, .zero_stage = 1, .schedule = schedule, .clipping = 0, .offloads = true, .delays = delays});
  }
  SECTION("beside each other, with clipping") {
    const bool tied = GENERATE(false, true);
    check_same({.mesh = {2, 2, 1},
                .zero_stage = 1,
                .schedule = schedule,
                .tied = tied,
                .clipping = 0.05,
                .offloads = true,
                .delays = delays});
  }
}

TEST_CASE("a stage tells which micro batch it works on, for those that wait for it", "[runtime][engine][pipeline]") {
  const auto runs = run_on({.mesh = {1, 2, 1}, .micro_batches = 2});
  const std::vector<std::string> of_last{"receive activation of micro batch 0",
                                         "forward of micro batch 0",
                                         "backward of micro batch 0",
                                         "send gradient of micro batch 0, receive activation of micro batch 1",
                                         "forward of micro batch 1",
                                         "backward of micro batch 1",
                                         "send gradient of micro batch 1",
                                         "the reduction of gradients"};
  const auto& told = runs[1].activities;
  REQUIRE(told.size() == kSteps * of_last.size());
  CHECK(std::vector<std::string>(told.begin(), told.begin() + std::ssize(of_last)) == of_last);
  CHECK(run_on({.mesh = {1, 1, 1}})[0].activities.empty());
}
