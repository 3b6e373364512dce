// Optimizer state in files: the numbers of a run whose state is resident, bit by bit, and what a failing disk comes to.
#include <ATen/ATen.h>

#include <atomic>
#include <catch2/catch.hpp>
#include <filesystem>

#include "runtime/engine/run/checkpointing.hpp"
#include "support/expect_error.hpp"
#include "support/faulty_queue.hpp"
#include "support/job_files.hpp"
#include "support/job_rank.hpp"
#include "support/memory_store.hpp"
#include "support/mesh_threads.hpp"
#include "support/mixed_net.hpp"

using namespace dslaunch;
using namespace dslaunch::runtime;
using namespace dslaunch::runtime::engine::step;
using test::json;

namespace {

struct Trained {
  std::vector<double> losses, norms;
  test::States state;
};

Trained train(const std::string& model, const json& config, int ranks) {
  Trained out;
  std::vector<std::vector<OwnedState>> owned(static_cast<size_t>(ranks));
  test::run_mesh({.data = ranks}, [&](const comm::Groups& groups) {
    test::JobRank rank(model, config, groups);
    for (int step = 0; step < 4; ++step) {
      const auto result = rank.step();
      if (groups.world.rank() != 0) continue;
      out.losses.push_back(result.loss);
      out.norms.push_back(result.grad_norm);
    }
    owned[static_cast<size_t>(groups.world.rank())] = rank.owned_state();
  });
  out.state = test::join(owned);
  return out;
}

json in_files(const std::string& directory, const json& more = json::object()) {
  return test::with({{"device", "nvme"}, {"nvme_path", directory}}, more);
}

json zero(int stage, const json& more) {
  return {{"zero_optimization", test::with({{"stage", stage}, {"stage3_param_persistence_threshold", 0}}, more)}};
}

// Puts a queue in front of each queue of the file that asks `fault` about every block.
EngineOptions with_faults(test::Fault fault) {
  EngineOptions options;
  options.wrap_file_queue = [fault = std::move(fault)](auto inner) -> std::unique_ptr<file_io::BlockQueue> {
    return std::make_unique<test::FaultyQueue>(std::move(inner), fault);
  };
  return options;
}

void check_same(const test::JobFiles& job, const json& stored, const json& resident, int ranks) {
  INFO(stored.dump() << " on " << ranks << " ranks");
  const Trained want = train(job.model, resident, ranks), got = train(job.model, stored, ranks);
  CHECK(got.losses == want.losses);
  CHECK(got.norms == want.norms);
  CHECK(test::first_difference(got.state, want.state) == "");
}

}  // namespace

TEST_CASE("state in files changes no bit of a run", "[runtime][engine][offload]") {
  const test::JobFiles job(test::make_mixed_net());
  const test::TempDir swap;
  const int stage = GENERATE(1, 2, 3), ranks = GENERATE(1, 2);
  const auto precision = GENERATE(json::object(), json{{"bf16", {{"enabled", true}}}});
  const json common = test::with(precision, {{"gradient_accumulation_steps", 2}, {"gradient_clipping", 0.3}});
  const json keys = GENERATE(json::object(), json{{"pipeline_read", true}, {"pipeline_write", true}},
                             json{{"buffer_count", 1}, {"pipeline_read", true}},
                             json{{"buffer_count", 2}, {"pipeline_read", true}, {"pipeline_write", true}});
  check_same(job, job.config(zero(stage, {{"offload_optimizer", in_files(swap.path(), keys)}}), common),
             job.config(zero(stage, json::object()), common), ranks);
  CHECK(std::filesystem::is_empty(swap.path()));
}

TEST_CASE("every optimizer trains with its state in files", "[runtime][engine][offload]") {
  const test::JobFiles job(test::make_mixed_net());
  const test::TempDir swap;
  const json nothing{{"betas", nullptr}, {"eps", nullptr}};
  const json optimizer =
      GENERATE_COPY(json{{"type", "SGD"}, {"params", nothing}},
                    json{{"type", "SGD"}, {"params", test::with(nothing, {{"momentum", 0.9}})}},
                    json{{"type", "Lion"}, {"params", {{"eps", nullptr}}}}, json{{"params", {{"amsgrad", true}}}},
                    json{{"type", "Adagrad"}, {"params", {{"betas", nullptr}, {"initial_accumulator_value", 0.1}}}},
                    json{{"no_decay", "auto"}});
  const json changes{{"optimizer", optimizer}};
  check_same(job, job.config(zero(3, {{"offload_optimizer", in_files(swap.path())}}), changes),
             job.config(zero(3, json::object()), changes), 2);
}

TEST_CASE("a delayed update is the same from files and from host memory", "[runtime][engine][offload]") {
  const test::JobFiles job(test::make_mixed_net());
  const test::TempDir swap;
  const int stage = GENERATE(1, 3);
  const json delayed{{"delayed_update", {{"warmup_steps", 1}}}};
  const json host = test::with(delayed, {{"device", "cpu"}});
  check_same(job, job.config(zero(stage, {{"offload_optimizer", in_files(swap.path(), delayed)}})),
             job.config(zero(stage, {{"offload_optimizer", host}})), 2);
}

TEST_CASE("a disk that fails in the middle of a step ends the run", "[runtime][engine][offload]") {
  const test::JobFiles job(test::make_mixed_net());
  const test::TempDir swap;
  const bool is_write = GENERATE(false, true);
  const int error = GENERATE(EIO, ENOSPC);
  const json keys{{"pipeline_read", true}, {"pipeline_write", true}};
  const auto config = job.config(zero(2, {{"offload_optimizer", in_files(swap.path(), keys)}}));
  test::run_mesh({.data = 1}, [&](const comm::Groups& groups) {
    std::atomic<bool> is_broken{false};
    test::JobRank rank(job.model, config, groups, with_faults([&](const file_io::Block& block) {
                         return is_broken && block.is_write == is_write ? std::optional<int64_t>(-error) : std::nullopt;
                       }));
    rank.step();
    rank.owned_state();  // the update has been written
    is_broken = true;
    const std::vector<std::string> words{is_write ? "write" : "read", "at offset", swap.path(), describe_errno(error)};
    test::expect_error(ExitCode::kIoError, words, [&] {
      rank.step();
      rank.owned_state();
    });
  });
}

TEST_CASE("state that a failed update has left is never saved", "[runtime][engine][offload]") {
  const test::JobFiles job(test::make_mixed_net());
  const test::TempDir swap;
  const auto config = job.config(zero(2, {{"offload_optimizer", in_files(swap.path())}}));
  test::run_mesh({.data = 1}, [&](const comm::Groups& groups) {
    std::atomic<int> num_writes{0}, failing{-1};  // by number
    test::JobRank rank(job.model, config, groups, with_faults([&](const file_io::Block& block) {
                         return block.is_write && num_writes++ == failing ? std::optional<int64_t>(-EIO) : std::nullopt;
                       }));
    rank.step();
    rank.owned_state();
    const int first = num_writes;
    rank.step();
    rank.owned_state();
    failing = num_writes + (num_writes - first) - 1;  // the last one of the next step: of its state
    const auto fail = [&] { rank.owned_state(); };
    rank.step();
    test::expect_error(ExitCode::kIoError, {"write", "at offset"}, fail);
    test::expect_error(ExitCode::kIoError, {"write", "at offset"}, fail);
  });
}

TEST_CASE("a save that cannot read the files leaves the last checkpoint as it was", "[runtime][engine][offload]") {
  const test::JobFiles job(test::make_mixed_net());
  const test::TempDir swap, run;
  const auto config = job.config(zero(2, {{"offload_optimizer", in_files(swap.path())}}));
  test::MemoryStore store;
  test::run_mesh({.data = 1}, [&](const comm::Groups& groups) {
    std::atomic<bool> is_broken{false};
    test::JobRank rank(job.model, config, groups, with_faults([&](const file_io::Block& block) {
                         return is_broken && !block.is_write ? std::optional<int64_t>(-EIO) : std::nullopt;
                       }));
    engine::run::CheckpointingOptions options;
    options.run_dir = run.path();
    options.checkpoint = rank.config.checkpoint;
    options.model_path = job.model;
    options.placement = {0, 1, 0, 0, 1, "this host"};
    options.dtypes = rank.dtypes;
    engine::run::Checkpointing checkpoints(options, *rank.model, *rank.engine, groups, store, at::kCPU);
    rank.step();
    checkpoints.save({}, /*wait=*/true);
    const auto saved = rank.owned_state();
    rank.step();
    rank.owned_state();
    is_broken = true;
    test::expect_error(ExitCode::kIoError, {"read", "at offset", swap.path(), "earlier checkpoints are unchanged"},
                       [&] { checkpoints.save({}, /*wait=*/true); });
    is_broken = false;
    CHECK(checkpoints.resume("auto") == DataPosition{});
    CHECK(rank.engine->steps_done() == 1);
    CHECK(test::first_difference(test::join({rank.owned_state()}), test::join({saved})) == "");
  });
}

TEST_CASE("short reads and writes are continued", "[runtime][engine][offload]") {
  const test::JobFiles job(test::make_mixed_net());
  const test::TempDir swap;
  const json changes{{"gradient_clipping", 0.3}};
  const auto want = train(job.model, job.config(zero(1, json::object()), changes), 1);
  const auto config = job.config(zero(1, {{"offload_optimizer", in_files(swap.path())}}), changes);
  test::run_mesh({.data = 1}, [&](const comm::Groups& groups) {
    std::atomic<int> number{0};
    const auto fault = [&](const file_io::Block& block) -> std::optional<int64_t> {
      const int kind = number++ % 3;
      if (kind == 0) return -EINTR;
      if (kind == 1 && block.bytes > 512) return 512;
      return std::nullopt;
    };
    test::JobRank rank(job.model, config, groups, with_faults(fault));
    for (int step = 0; step < 4; ++step) CHECK(rank.step().loss == want.losses[static_cast<size_t>(step)]);
    CHECK(test::first_difference(test::join({rank.owned_state()}), want.state) == "");
  });
}
