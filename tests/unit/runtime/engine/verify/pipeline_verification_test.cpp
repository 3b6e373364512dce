// Pipelines of stages (threads) beside the replica of the whole model, as they are and with a fault in what stages
// exchange.
#include <ATen/ATen.h>

#include <catch2/catch.hpp>
#include <cstring>
#include <vector>

#include "base/error.hpp"
#include "base/format.hpp"
#include "runtime/engine/setup/initial_values.hpp"
#include "runtime/engine/setup/load_model.hpp"
#include "runtime/engine/verify/verification.hpp"
#include "support/chain_net.hpp"
#include "support/memory_store.hpp"
#include "support/mesh_threads.hpp"
#include "support/temp_dir.hpp"

using namespace dslaunch;
using namespace dslaunch::runtime;
using namespace dslaunch::runtime::engine;
using Catch::Contains;

namespace {

constexpr int64_t kMicroBatch = 2;
constexpr size_t kActivationBytes = kMicroBatch * test::kChainLength * test::kChainWidth * sizeof(float);

enum class Fault : uint8_t {
  kNone,
  kActivationIsLost,       // the last stage computes with what its memory held
  kActivationIsOfAnother,  // with the activation of the micro batch before
  kGradientIsLost,         // the first stage gets no gradient for a micro batch
  kTiedIsNotSummed,        // the last stage does not get the other stage's part of a gradient
};

// The group of a pipeline, with a fault in what this rank receives.
class FaultyPipe : public comm::Communicator {
 public:
  FaultyPipe(comm::Communicator& inner, Fault fault) : inner_(inner), fault_(fault) {}

  int rank() const override { return inner_.rank(); }
  int size() const override { return inner_.size(); }
  void all_reduce(comm::Buffer buffer, comm::ReduceOp op) override { inner_.all_reduce(buffer, op); }
  void reduce_scatter(comm::ConstBuffer in, comm::Buffer out, comm::ReduceOp op) override {
    inner_.reduce_scatter(in, out, op);
  }
  void all_gather(comm::ConstBuffer in, comm::Buffer out) override { inner_.all_gather(in, out); }
  void all_to_all(comm::ConstBuffer in, comm::Buffer out) override { inner_.all_to_all(in, out); }
  void broadcast(comm::Buffer buffer, int root) override { inner_.broadcast(buffer, root); }
  void barrier() override { inner_.barrier(); }
  void wait_for_completion() override { inner_.wait_for_completion(); }
  void wait_until(const std::function<bool()>& is_reached) override { inner_.wait_until(is_reached); }
  void abort(const std::string& reason) override { inner_.abort(reason); }

  void exchange(std::span<const comm::Outgoing> sends, std::span<const comm::Incoming> receives) override {
    inner_.exchange(sends, receives);
    for (const auto& [buffer, source] : receives) damage(buffer, source);
  }

 private:
  void damage(const comm::Buffer& buffer, int source) {
    const bool is_tied = buffer.dtype == comm::DType::kFloat32;
    if (is_tied || buffer.count != kActivationBytes) {
      if (is_tied && fault_ == Fault::kTiedIsNotSummed && rank() + 1 == size()) {
        std::memset(buffer.data, 0, buffer.count * sizeof(float));
      }
      return;
    }
    const std::vector<char> received(static_cast<char*>(buffer.data), static_cast<char*>(buffer.data) + buffer.count);
    const bool is_activation = source < rank(), is_second = ++num_received_ == 2;
    if (is_second && is_activation && fault_ == Fault::kActivationIsLost) std::memset(buffer.data, 0, buffer.count);
    if (is_second && is_activation && fault_ == Fault::kActivationIsOfAnother) {
      std::memcpy(buffer.data, last_.data(), buffer.count);
    }
    if (is_second && !is_activation && fault_ == Fault::kGradientIsLost) std::memset(buffer.data, 0, buffer.count);
    last_ = received;
  }

  comm::Communicator& inner_;
  const Fault fault_;
  int num_received_ = 0;    // activations, or on the first stage gradients
  std::vector<char> last_;  // of them
};

struct Run {
  comm::Mesh mesh{1, 2, 1};
  bool tied = false;
  int zero_stage = 0;
  config::PipelineSchedule schedule = config::PipelineSchedule::k1F1B;
  config::OptimizerType optimizer = config::OptimizerType::kAdamW;
  bool offloads = false, delays = false;
  Fault fault = Fault::kNone;
  int steps = 3;
};

struct Ends {
  std::vector<std::string> errors;  // by rank; empty: none
  std::string report;
};

config::JobConfig config_of(const Run& run) {
  auto config = test::chain_config(run.mesh.data, run.mesh.pipe, kMicroBatch, /*micro_batches=*/3);
  config.gradient_clipping = 0.5;
  config.optimizer.type = run.optimizer;
  config.zero.stage = run.zero_stage;
  config.pipeline.schedule = run.schedule;
  if (run.offloads) config.zero.offload_optimizer.device = config::OffloadDevice::kHost;
  config.zero.offload_optimizer.delayed_update = run.delays;
  return config;
}

Ends verify(const Run& run) {
  test::TempDir folder;
  const std::string path = folder / "net.pt";
  test::chain_net(run.tied).save(path);
  const auto config = config_of(run);
  const device::Device device(at::kCPU);
  std::vector<std::unique_ptr<model::Model>> models;
  for (int rank = 0; rank < run.mesh.size(); ++rank) {
    models.push_back(setup::load_part(path, config, device, {run.mesh.pipe, run.mesh.coordinates(rank).pipe}));
  }
  test::MemoryStore store;
  Ends ends;
  ends.errors.resize(models.size());
  test::run_mesh(run.mesh, [&](const comm::Groups& whole) {
    const auto rank = static_cast<size_t>(whole.world.rank());
    model::Model& model = *models[rank];
    FaultyPipe pipe(*whole.pipe, run.fault);
    comm::Groups groups = whole;
    groups.pipe = &pipe;
    const auto data =
        setup::open_training_data(model.facts, config, groups.mesh, groups.world.rank(), at::kFloat, false);
    step::Engine engine(model, config, {}, groups, setup::initial_values(model, {}, path));
    try {
      verify::Verification verification(engine, {model, device, path, config, {}, data, {}, run.mesh.data, {}}, groups,
                                        store, /*is_resumed=*/false);
      BatchLoader loader(data.train, data.train_arrays, config.data, data.loader, {});
      for (int i = 0; i < run.steps; ++i) {
        const auto result =
            engine.train_step([&] { return setup::on_device(loader.next(), at::kCPU); }, /*stop_requested=*/false);
        verification.compare(*result);
      }
      if (rank == 0) ends.report = verification.report();
    } catch (const UserError& error) {  // on all ranks
      ends.errors[rank] = fmt::format("{}: {}", to_int(error.code()), error.what());
    }
  });
  return ends;
}

void check_agrees(const Run& run) {
  const auto ends = verify(run);
  for (const auto& error : ends.errors) CHECK(error.empty());
  CHECK_THAT(ends.report, Contains("3 steps agree"));
}

// On all ranks alike.
std::string error_of(const Run& run) {
  const auto ends = verify(run);
  for (const auto& error : ends.errors) CHECK(error == ends.errors[0]);
  CHECK_THAT(ends.errors[0], Catch::StartsWith("76: --verify: at step 1 the run differs from an unsharded replica"));
  return ends.errors[0];
}

}  // namespace

TEST_CASE("a pipeline that computes what the whole model does agrees with its replica",
          "[runtime][engine][verification][pipeline]") {
  SECTION("in any schedule") {
    const auto schedule =
        GENERATE(config::PipelineSchedule::k1F1B, config::PipelineSchedule::kGPipe, config::PipelineSchedule::kZbH1);
    check_agrees({.mesh = {1, 3, 1}, .schedule = schedule});
  }
  SECTION("with tied weights, on several data ranks") {
    const int zero_stage = GENERATE(0, 1);
    check_agrees({.mesh = {2, 2, 1}, .tied = true, .zero_stage = zero_stage});
  }
  SECTION("with optimizers that need norms of tied weights") {
    const auto optimizer = GENERATE(config::OptimizerType::kLamb, config::OptimizerType::kMuon);
    check_agrees({.mesh = {2, 2, 1}, .tied = true, .zero_stage = 1, .optimizer = optimizer});
  }
  SECTION("with an offloaded optimizer") {
    const bool delays = GENERATE(false, true);
    check_agrees({.mesh = {2, 2, 1}, .tied = true, .zero_stage = 1, .offloads = true, .delays = delays});
  }
}

TEST_CASE("a fault in what stages exchange is found at its step", "[runtime][engine][verification][pipeline]") {
  CHECK_THAT(error_of({.fault = Fault::kActivationIsLost}), Contains("the loss is"));
  CHECK_THAT(error_of({.fault = Fault::kActivationIsOfAnother}), Contains("the loss is"));
  CHECK_THAT(error_of({.mesh = {2, 2, 1}, .fault = Fault::kGradientIsLost}),
             Contains("first difference: parameter 'table'") && Contains("on rank 0"));
}

TEST_CASE("a tied weight that a stage updates by itself is found there", "[runtime][engine][verification][pipeline]") {
  CHECK_THAT(error_of({.tied = true, .fault = Fault::kTiedIsNotSummed}),
             Contains("parameter 'table'") && Contains("where forward reads it on rank 1"));
}
