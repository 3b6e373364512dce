// Runs on meshes of data and tensor ranks (threads). The ranks of one model here all compute the whole of it, so a mesh
// must train exactly as its data ranks alone. (Stages: step/pipeline_training_test.cpp.)
#include <ATen/ATen.h>
#include <torch/script.h>

#include <catch2/catch.hpp>
#include <cmath>
#include <map>

#include "runtime/engine/setup/training_data.hpp"
#include "runtime/engine/step/engine.hpp"
#include "runtime/model/torchscript/load_script_model.hpp"
#include "support/engine_run.hpp"
#include "support/mesh_threads.hpp"
#include "support/temp_dir.hpp"

using namespace dslaunch;
using namespace dslaunch::runtime;
using namespace dslaunch::runtime::engine::setup;
using namespace dslaunch::runtime::engine::step;
using namespace dslaunch::runtime::model;
using namespace dslaunch::runtime::model::torchscript;
using torch::jit::Module;

namespace {

constexpr int kSteps = 3;
constexpr int64_t kMicroBatch = 2, kAccumulation = 2;

// Two parameters, and a buffer that adds up what forward has seen.
Module make_net() {
  torch::manual_seed(5);
  Module net("Net");
  net.register_parameter("weight", at::randn({7, 3}), false);
  net.register_parameter("bias", at::zeros({3}), false);
  net.register_buffer("seen", at::zeros({}));
  net.register_attribute("training", c10::BoolType::get(), true);
  for (const auto& p : net.named_parameters()) p.value.set_requires_grad(true);
  net.define(R"(
    def forward(self, x):
        if self.training:
            self.seen.add_(x.detach().sum())
        return torch.tanh(torch.matmul(x, self.weight) + self.bias) + self.seen * 0.001
  )");
  return net;
}

config::JobConfig config_of(const comm::Mesh& mesh, int stage) {
  config::JobConfig config;
  config.batch = {kMicroBatch * kAccumulation * mesh.data, kMicroBatch, kAccumulation};
  config.optimizer.lr = 0.01;
  config.zero.stage = stage;
  config.zero.param_persistence_threshold = 0;
  config.data.synthetic_train = true;
  config.data.synthetic = {{.name = "x", .shape = {7}}, {.name = "y", .shape = {3}}};
  config.data.num_workers = 0;
  config.loss = "mse";
  return config;
}

using RankRun = test::EngineRun;

// By rank of the world.
std::vector<RankRun> run_on(const comm::Mesh& mesh, int stage) {
  test::TempDir folder;
  const std::string path = folder / "net.pt";
  make_net().save(path);
  std::vector<std::unique_ptr<Model>> models;  // loaded one by one: that is for one thread
  for (int rank = 0; rank < mesh.size(); ++rank) models.push_back(load_script_model(path, {}));
  std::vector<RankRun> runs(models.size());
  test::run_mesh(mesh, [&](const comm::Groups& groups) {
    const auto rank = static_cast<size_t>(groups.world.rank());
    runs[rank] = test::run_engine(groups, *models[rank], config_of(mesh, stage), kSteps);
  });
  return runs;
}

// How often each element of each state is owned by some rank, and the sum of its values there.
std::map<std::pair<std::string, std::string>, std::pair<at::Tensor, at::Tensor>> claims_of(
    const std::vector<RankRun>& runs) {
  std::map<std::pair<std::string, std::string>, std::pair<at::Tensor, at::Tensor>> out;
  for (const auto& run : runs) {
    for (const auto& owned : run.state) {
      auto& [count, sum] = out[{owned.parameter, owned.state}];
      if (!count.defined()) count = at::zeros({21}), sum = at::zeros({21});
      count.narrow(0, owned.begin, owned.values.numel()).add_(1);
      sum.narrow(0, owned.begin, owned.values.numel()).add_(owned.values);
    }
  }
  return out;
}

void check_same_batches(const comm::Mesh& mesh, const std::vector<RankRun>& runs, const std::vector<RankRun>& alone) {
  for (int rank = 0; rank < mesh.size(); ++rank) {
    const auto& expected = alone[static_cast<size_t>(mesh.coordinates(rank).data)].inputs;
    const auto& own = runs[static_cast<size_t>(rank)].inputs;
    REQUIRE(own.size() == expected.size());
    for (size_t i = 0; i < own.size(); ++i) CHECK(own[i].equal(expected[i]));
  }
}

}  // namespace

TEST_CASE("tensor ranks read the same batches and count once", "[runtime][engine][mesh]") {
  const int stage = GENERATE(0, 1, 2, 3);
  const comm::Mesh mesh = GENERATE(comm::Mesh{2, 1, 2}, comm::Mesh{1, 1, 3}, comm::Mesh{3, 1, 2});
  INFO("stage " << stage << ", data " << mesh.data << ", tensor " << mesh.tensor);
  const auto alone = run_on({.data = mesh.data}, stage), runs = run_on(mesh, stage);
  check_same_batches(mesh, runs, alone);
  for (const auto& run : runs) {
    for (size_t i = 0; i < kSteps; ++i) {
      CHECK(run.steps[i].loss == alone[0].steps[i].loss);
      CHECK(run.steps[i].grad_norm == alone[0].steps[i].grad_norm);
    }
    CHECK(run.evaluation.loss == alone[0].evaluation.loss);
    CHECK(run.evaluation.num_samples == alone[0].evaluation.num_samples);
  }
  const auto claims = claims_of(runs), expected = claims_of(alone);
  REQUIRE(claims.size() == 6);  // two parameters: master and two moments
  for (const auto& [key, claim] : claims) {
    INFO(key.first << " " << key.second);
    CHECK(claim.first.equal(expected.at(key).first));  // each element once
    CHECK(claim.first.max().item<float>() == 1);
    CHECK(claim.second.equal(expected.at(key).second));
  }
}

TEST_CASE("a stop request of any rank of the mesh reaches all ranks", "[runtime][engine][mesh]") {
  const comm::Mesh mesh{2, 1, 2};
  test::TempDir folder;
  const std::string path = folder / "net.pt";
  make_net().save(path);
  std::vector<std::unique_ptr<Model>> models;
  for (int rank = 0; rank < mesh.size(); ++rank) models.push_back(load_script_model(path, {}));
  std::vector<char> stopped(models.size());
  test::run_mesh(mesh, [&](const comm::Groups& groups) {
    const int rank = groups.world.rank();
    auto& model = *models[static_cast<size_t>(rank)];
    const auto config = config_of(mesh, 1);
    const auto data = open_training_data(model.facts, config, mesh, rank, at::kFloat, false);
    Engine engine(model, config, {}, groups, [&](int, int64_t, at::Tensor values) { values.fill_(0.1); });
    BatchLoader loader(data.train, data.train_arrays, config.data, data.loader, {});
    const auto result = engine.train_step([&] { return on_device(loader.next(), at::kCPU); }, rank == 1);
    stopped[static_cast<size_t>(rank)] = result->stop_requested;
  });
  CHECK(stopped == std::vector<char>(models.size(), 1));
}
