// A run of three ranks (threads) beside its replica, whole and with one thing damaged in its collectives: the parameter
// that suffers is named.
#include "runtime/engine/verify/verification.hpp"

#include <ATen/ATen.h>
#include <torch/script.h>

#include <catch2/catch.hpp>
#include <cmath>
#include <thread>

#include "base/error.hpp"
#include "base/format.hpp"
#include "runtime/model/torchscript/load_script_model.hpp"
#include "support/expect_error.hpp"
#include "support/memory_store.hpp"
#include "support/temp_dir.hpp"
#include "support/thread_communicator.hpp"

using namespace dslaunch;
using namespace dslaunch::runtime;
using namespace dslaunch::runtime::engine::setup;
using namespace dslaunch::runtime::engine::step;
using namespace dslaunch::runtime::engine::verify;
using namespace dslaunch::runtime::model;
using namespace dslaunch::runtime::model::torchscript;
using torch::jit::Module;

TEST_CASE("what tensor ranks draw on parts of values is not verified", "[runtime][engine][verify]") {
  ModelFacts facts;
  require_same_draws(facts);
  facts.placements = PlacementReport{.ranks = 2};
  require_same_draws(facts);
  facts.placements->draws_on_parts = {"dropout in 'Mlp'", "attention's dropout in 'Block'"};
  CHECK(
      test::message_of(ExitCode::kBadInput, "", [&] { require_same_draws(facts); }) ==
      "--verify with 2 tensor ranks: dropout in 'Mlp', attention's dropout in 'Block': each rank draws its own numbers "
      "for its part of a split value, which the unsharded replica cannot draw; verify with --tp 1, or with a model "
      "whose dropout is 0");
}

namespace {

constexpr int kRanks = 3;

Module make_net() {
  torch::manual_seed(3);
  Module blocks("Blocks");
  for (const char* name : {"0", "1"}) {
    Module block("Block");
    block.register_parameter("weight", at::randn({40, 40}) * 0.2, false);
    block.register_parameter("bias", at::zeros({40}), false);
    block.define("def forward(self, x):\n    return torch.tanh(torch.matmul(x, self.weight) + self.bias) + x\n");
    blocks.register_module(name, block);
  }
  blocks.define("def forward(self, x):\n    return x\n");
  Module net("Net");
  net.register_module("blocks", blocks);
  net.register_parameter("head", at::randn({40, 1}) * 0.2, false);
  for (const auto& p : net.named_parameters()) p.value.set_requires_grad(true);
  net.define(R"(
    def forward(self, x):
        x = getattr(self.blocks, "0").forward(x)
        x = getattr(self.blocks, "1").forward(x)
        return torch.matmul(x, self.head)
  )");
  return net;
}

// x float32 [40], y float32 [1]: numbers made of the sample's own.
class WaveSamples : public SampleSource {
 public:
  const std::vector<ArrayInfo>& arrays() const override { return arrays_; }
  int64_t num_samples() const override { return 60; }
  std::string describe(size_t, int64_t) const override { return "'memory'"; }
  void read(size_t array, int64_t sample, void* out) const override {
    auto* values = static_cast<float*>(out);
    for (int i = 0; i < (array == 0 ? 40 : 1); ++i) {
      values[i] = static_cast<float>(std::sin(0.37 * static_cast<double>(sample + 1) * (i + 1)));
    }
  }

 private:
  std::vector<ArrayInfo> arrays_{{"x", at::kFloat, {40}}, {"y", at::kFloat, {1}}};
};

// Adds to one element of what a collective gave this rank, the `when`-th time that fp32 of this size came.
struct Damage {
  enum class Where { kNowhere, kReduced, kGathered } where = Where::kNowhere;
  int rank = 0, when = 0;
  size_t element = 0;
  float amount = 0;
};

class DamagingCommunicator : public test::ThreadCommunicator {
 public:
  DamagingCommunicator(std::shared_ptr<test::ThreadGroup> group, int rank, Damage damage)
      : test::ThreadCommunicator(std::move(group), rank), damage_(damage) {}
  void reduce_scatter(comm::ConstBuffer in, comm::Buffer out, comm::ReduceOp op) override {
    test::ThreadCommunicator::reduce_scatter(in, out, op);
    strike(Damage::Where::kReduced, out);
  }
  void all_reduce(comm::Buffer buffer, comm::ReduceOp op) override {
    test::ThreadCommunicator::all_reduce(buffer, op);
    if (buffer.count > 1000) strike(Damage::Where::kReduced, buffer);
  }
  void all_gather(comm::ConstBuffer in, comm::Buffer out) override {
    test::ThreadCommunicator::all_gather(in, out);
    if (out.dtype == comm::DType::kFloat32) strike(Damage::Where::kGathered, out);
  }

 private:
  void strike(Damage::Where where, comm::Buffer buffer) {
    if (where != damage_.where || rank() != damage_.rank || damage_.when-- != 0) return;
    static_cast<float*>(buffer.data)[damage_.element] += damage_.amount;
  }
  Damage damage_;
};

struct Run {
  int stage = 0;
  int64_t accumulation = 1;
  int steps = 4;
  Damage damage;
};

struct Ends {
  std::vector<std::string> errors = std::vector<std::string>(kRanks);  // by rank; empty: none
  std::string report;
};

config::JobConfig config_of(const Run& run) {
  config::JobConfig config;
  config.batch = {2 * kRanks * run.accumulation, 2, run.accumulation};
  config.optimizer.lr = 0.01;
  config.gradient_clipping = 0.5;
  config.zero.stage = run.stage;
  config.zero.param_persistence_threshold = 0;
  config.data.shuffle = false;
  config.data.num_workers = 0;
  config.loss = "mse";
  return config;
}

Ends verify(const Run& run) {
  test::TempDir folder;
  const std::string path = folder / "net.pt";
  make_net().save(path);
  std::vector<std::unique_ptr<Model>> models;
  for (int rank = 0; rank < kRanks; ++rank) models.push_back(load_script_model(path, {}));

  const auto config = config_of(run);
  auto group = std::make_shared<test::ThreadGroup>(kRanks);
  test::MemoryStore store;
  Ends ends;
  auto be_rank = [&](int rank) {
    DamagingCommunicator world(group, rank, run.damage);
    TrainingData data;
    data.train = std::make_shared<WaveSamples>();
    data.train_arrays = {{0}, {1}};
    data.loader = {rank, kRanks, config.batch, {}};
    Engine engine(*models[static_cast<size_t>(rank)], config, {}, comm::Groups::of_data_ranks(world),
                  [&](int parameter, int64_t begin, at::Tensor out) {
                    out.copy_(models[static_cast<size_t>(rank)]->initial.value(parameter).reshape({-1}).narrow(
                        0, begin, out.numel()));
                  });
    const device::Device device(at::kCPU);
    Verification verification(engine,
                              {*models[static_cast<size_t>(rank)], device, path, config, {}, data, {}, kRanks, {}},
                              comm::Groups::of_data_ranks(world), store, false);
    BatchLoader loader(data.train, data.train_arrays, config.data, data.loader, {});
    for (int step = 0; step < run.steps; ++step) {
      const auto result = engine.train_step([&] { return on_device(loader.next(), at::kCPU); }, false);
      verification.compare(*result);
    }
    if (rank == 0) ends.report = verification.report();
  };
  std::vector<std::thread> threads;
  for (int rank = 0; rank < kRanks; ++rank) {
    threads.emplace_back([&, rank] {
      try {
        be_rank(rank);
      } catch (const Error& error) {
        ends.errors[static_cast<size_t>(rank)] = fmt::format("{}: {}", to_int(error.code()), error.what());
      }
    });
  }
  for (auto& thread : threads) thread.join();
  return ends;
}

}  // namespace

TEST_CASE("a run that is one with its replica is said to be", "[runtime][engine][verification]") {
  const int stage = GENERATE(0, 1, 2, 3);
  const auto ends = verify({.stage = stage, .accumulation = 2});
  INFO("stage " << stage << ": " << ends.report);
  for (const auto& error : ends.errors) CHECK(error.empty());
  CHECK_THAT(ends.report, Catch::Contains("4 steps agree"));
}

TEST_CASE("one damaged element of a reduced gradient names its parameter, element and step on all ranks",
          "[runtime][engine][verification]") {
  // Stage 1 reduces three groups a step, from the last unit to the root: number 4 is the first block in the second
  // step.
  const auto ends = verify({.stage = 1, .damage = {Damage::Where::kReduced, 1, 4, 7, 1e-2F}});
  INFO(ends.errors[0]);
  CHECK_THAT(ends.errors[0], Catch::StartsWith("76: --verify: at step 2"));
  CHECK_THAT(ends.errors[0], Catch::Contains("parameter 'blocks.0.") && Catch::Contains("unit 'blocks.0'") &&
                                 Catch::Contains("on rank 1") && Catch::Contains("in the replica"));
  CHECK(ends.errors[1] == ends.errors[0]);
  CHECK(ends.errors[2] == ends.errors[0]);
}

TEST_CASE("an error in one gradient shows in the moments though Adam's first step hides it",
          "[runtime][engine][verification]") {
  const auto ends = verify({.stage = 2, .damage = {Damage::Where::kReduced, 2, 1, 3, 1e-3F}});
  INFO(ends.errors[2]);
  CHECK_THAT(ends.errors[2], Catch::StartsWith("76: --verify: at step 1") && Catch::Contains("on rank 2") &&
                                 Catch::Contains(" of exp_avg"));
}

TEST_CASE("parameters that arrive wrong on one rank are found though all masters agree",
          "[runtime][engine][verification]") {
  // After the first step of stage 1 (three groups were gathered at the start), the first block: the element lies in
  // what rank 2 owns, and rank 0 gets it wrong.
  const auto ends = verify({.stage = 1, .damage = {Damage::Where::kGathered, 0, 3 + 1, 1200, 1e-3F}});
  INFO(ends.errors[0]);
  CHECK_THAT(ends.errors[0], Catch::StartsWith("76: --verify: at step 1") &&
                                 Catch::Contains("forward reads it on rank 0") &&
                                 Catch::Contains("parameter 'blocks.0.weight'") && Catch::Contains("element [30, 0]"));
  CHECK(ends.errors[1] == ends.errors[0]);
}
