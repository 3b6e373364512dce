// State of tensor ranks that hold parts of the parameters (tests/support/sliced_net.hpp): training, initial values and
// checkpoints on meshes of data and tensor ranks (threads) against those of data ranks alone.
#include <ATen/ATen.h>

#include <catch2/catch.hpp>

#include "base/format.hpp"
#include "runtime/checkpoint/consolidate.hpp"
#include "runtime/engine/verify/verification.hpp"
#include "runtime/model/torchscript/load_script_model.hpp"
#include "support/expect_error.hpp"
#include "support/job_files.hpp"
#include "support/job_rank.hpp"
#include "support/memory_store.hpp"
#include "support/mesh_threads.hpp"
#include "support/sliced_net.hpp"

using namespace dslaunch;
using namespace dslaunch::runtime;
using namespace dslaunch::runtime::engine::step;
using comm::Mesh;
using test::json;

namespace {

struct Trained {
  std::vector<StepResult> steps;
  test::States state;
  std::map<std::string, std::map<int, at::Tensor>> frozen;  // by name and rank: what forward reads
};

using Visit = std::function<void(test::JobRank& rank, const comm::Groups& groups)>;

// `begin` and `end` are called before the first step and after the last one.
Trained train(const std::string& model, const json& config, const Mesh& mesh, int64_t steps, const Visit& begin = {},
              const Visit& end = {}) {
  Trained out;
  std::vector<std::vector<OwnedState>> owned(static_cast<size_t>(mesh.size()));
  std::vector<std::map<std::string, at::Tensor>> read(owned.size());
  std::map<std::string, std::vector<int64_t>> shapes;
  test::run_mesh(mesh, [&](const comm::Groups& groups) {
    const auto index = static_cast<size_t>(groups.world.rank());
    test::JobRank rank(model, config, groups, {},
                       [&](model::Model& m) { test::slice_model(m, groups.own.tensor, groups.mesh.tensor); });
    if (begin) begin(rank, groups);
    for (int64_t step = 0; step < steps; ++step) {
      const auto result = rank.step();
      if (index == 0) out.steps.push_back(result);
    }
    if (end) end(rank, groups);
    owned[index] = rank.owned_state();
    read[index] = rank.read_parameters();
    if (index == 0) shapes = test::whole_shapes(rank.model->facts.table);
  });
  out.state = test::join_slices(owned, shapes);
  for (int rank = 0; rank < mesh.size(); ++rank) {
    for (const auto& [name, value] : read[static_cast<size_t>(rank)]) {
      if (name.ends_with(".frozen")) out.frozen[name][rank] = value;
    }
  }
  return out;
}

json zero(int stage, const json& more = json::object()) {
  return {{"zero_optimization", test::with({{"stage", stage}, {"stage3_param_persistence_threshold", 0}}, more)}};
}

// Ways to keep state: stages of ZeRO, in memory, on the host and in files.
constexpr size_t kNumWays = 5;
std::vector<json> ways_to_keep(const std::string& files) {
  const json host{{"offload_optimizer", {{"device", "cpu"}}}};
  const json disk{{"offload_optimizer", {{"device", "nvme"}, {"nvme_path", files}}},
                  {"offload_param", {{"device", "nvme"}, {"nvme_path", files}}}};
  return {zero(0), zero(1), zero(3), zero(2, host), zero(3, disk)};
}

Visit saving(const test::JobFiles& job, const std::string& directory, test::MemoryStore& store) {
  return [&job, directory, &store](test::JobRank& rank, const comm::Groups& groups) {
    const auto checkpoints = rank.checkpoints(job.model, directory, groups, store);
    checkpoints->save({0, 24}, /*wait=*/true);
    checkpoints->finish();
  };
}

Visit resuming(const std::string& from, test::MemoryStore& store) {
  return [from, &store](test::JobRank& rank, const comm::Groups& groups) { rank.resume(from, groups, store); };
}

std::string weights_of(const std::string& checkpoint) {
  const test::MemoryDir folder;
  consolidate({checkpoint, folder / "out.safetensors"});
  return test::read_file(folder / "out.safetensors");
}

}  // namespace

TEST_CASE("tensor ranks with parts of the parameters train as one rank with all of them", "[runtime][engine][slices]") {
  const auto mesh = GENERATE(Mesh{2, 1, 2}, Mesh{1, 1, 4});
  const test::JobFiles job(test::make_sliced_net());
  const auto config = job.config(ways_to_keep(job.folder.path()).at(GENERATE(range(size_t{0}, kNumWays))));
  INFO(config.dump() << ", data " << mesh.data << ", tensor " << mesh.tensor);
  const auto whole = train(job.model, config, {.data = mesh.data}, 3), cut = train(job.model, config, mesh, 3);
  CHECK(test::first_difference(cut.state, whole.state).empty());
  for (size_t i = 0; i < whole.steps.size(); ++i) {
    CHECK(cut.steps.at(i).loss == whole.steps[i].loss);
    CHECK(cut.steps.at(i).grad_norm == Approx(whole.steps[i].grad_norm).epsilon(1e-6));
  }
  for (const auto& [name, by_rank] : cut.frozen) {
    for (const auto& [rank, value] : by_rank) {
      const auto slice = test::slice_of(name, rank % mesh.tensor, mesh.tensor);
      CHECK(value.equal(local_part(whole.frozen.at(name).at(0), slice)));
    }
  }
}

TEST_CASE("LAMB's norms are those of whole parameters", "[runtime][engine][slices]") {
  const auto [stage, mesh] = GENERATE(table<int, Mesh>({{0, {2, 1, 2}}, {1, {2, 1, 2}}, {3, {1, 1, 3}}}));
  INFO("stage " << stage << ", data " << mesh.data << ", tensor " << mesh.tensor);
  const test::JobFiles job(test::make_sliced_net());
  const json lamb{{"optimizer", {{"type", "Lamb"}, {"params", {{"lr", 0.05}}}}}};
  const auto config = job.config(zero(stage), lamb);
  const auto whole = train(job.model, config, {.data = mesh.data}, 3), cut = train(job.model, config, mesh, 3);
  REQUIRE(cut.state.size() == whole.state.size());
  for (const auto& [key, values] : whole.state) {
    INFO(key.second << " of " << key.first);
    CHECK(at::allclose(cut.state.at(key), values, 1e-6, 1e-7));
  }
}

TEST_CASE("an empty model's tensor ranks begin with parts of the same values", "[runtime][engine][slices]") {
  const test::JobFiles job(test::make_sliced_net());
  const std::string empty = job.folder / "empty.pt";
  model::torchscript::write_model_skeleton(job.model, empty);
  const auto config = job.config(zero(3), {{"init", {{"seed", 4}, {"std", 0.5}}}});
  const auto whole = train(empty, config, {}, 0), cut = train(empty, config, {2, 1, 2}, 0);
  CHECK(test::first_difference(cut.state, whole.state).empty());
  CHECK(whole.state.at({"blocks.0.conv", "master"}).std().item<double>() > 0.2);
}

TEST_CASE("every mesh saves what every other loads", "[runtime][engine][slices][checkpoint]") {
  const test::JobFiles job(test::make_sliced_net());
  const test::MemoryDir folder;
  std::map<std::string, test::MemoryStore> stores;
  const auto config = job.config(zero(1));
  const std::string origin = folder / "origin";
  const auto saved = train(job.model, config, {.data = 2}, 2, {}, saving(job, origin, stores["origin"]));
  const std::string checkpoint = origin + "/checkpoints", weights = weights_of(checkpoint);
  const auto kept = job.config(ways_to_keep(folder.path()).at(GENERATE(range(size_t{0}, kNumWays))));
  INFO(kept.dump());
  for (const Mesh& mesh : {Mesh{2, 1, 2}, Mesh{1, 1, 3}, Mesh{1, 1, 4}}) {
    const std::string name = fmt::format("{}x{}", mesh.data, mesh.tensor), directory = folder / name;
    INFO(name);
    const auto loaded = train(job.model, kept, mesh, 0, resuming(checkpoint, stores["load " + name]),
                              saving(job, directory, stores["save " + name]));
    CHECK(test::first_difference(loaded.state, saved.state).empty());
    CHECK(weights_of(directory + "/checkpoints") == weights);
    for (const Mesh& other : {Mesh{.data = 4}, Mesh{2, 1, 2}}) {
      const auto again = train(
          job.model, config, other, 0,
          resuming(directory + "/checkpoints", stores[fmt::format("{} to {}x{}", name, other.data, other.tensor)]));
      CHECK(test::first_difference(again.state, saved.state).empty());
    }
  }
}

TEST_CASE("slices are verified against a replica with whole parameters", "[runtime][engine][slices][verification]") {
  const int stage = GENERATE(1, 3);
  const Mesh mesh = stage == 1 ? Mesh{2, 1, 2} : Mesh{1, 1, 3};
  const bool is_damaged = GENERATE(false, true);
  INFO("stage " << stage << ", data " << mesh.data << ", tensor " << mesh.tensor);
  const test::JobFiles job(test::make_sliced_net());
  test::MemoryStore store;
  std::string report;
  const auto verify = [&](test::JobRank& rank, const comm::Groups& groups) {
    const device::Device device(at::kCPU);
    EngineOptions options{.dtypes = rank.dtypes, .total_steps = 4};
    engine::verify::Verification verification(
        *rank.engine, {*rank.model, device, job.model, rank.config, options, rank.data, {}, mesh.data, {}}, groups,
        store, /*is_resumed=*/false);
    for (int step = 0; step < 2; ++step) verification.compare(rank.step());
    if (groups.world.rank() == 0) report = verification.report();
    if (!is_damaged) return;
    auto result = rank.step();
    for (const auto& owned : rank.engine->owned_state()) {
      if (owned.parameter != "blocks.1.conv" || owned.state != "master") continue;
      const auto [dim, start, length] = *owned.slice;
      const bool has_last = start + length == 12 && owned.begin + owned.count == 5 * length;
      if (has_last) owned.values[owned.values.numel() - 1].add_(1);
    }
    verification.compare(result);
  };
  const auto run = [&] { train(job.model, job.config(zero(stage)), mesh, 0, verify); };
  if (is_damaged) {
    test::expect_error(ExitCode::kCannotContinue, {"parameter 'blocks.1.conv'", "element [4, 11]", "in the replica"},
                       run);
  } else {
    run();
    CHECK_THAT(report, Catch::Contains("2 steps agree"));
  }
}
