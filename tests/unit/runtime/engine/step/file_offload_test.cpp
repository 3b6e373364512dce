// Optimizer state and parameters in files: the numbers of a run where both are resident, bit by bit, and what a failing
// disk comes to.
#include <ATen/ATen.h>

#include <algorithm>
#include <atomic>
#include <catch2/catch.hpp>
#include <chrono>
#include <cmath>
#include <condition_variable>
#include <filesystem>
#include <mutex>

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
  std::map<std::string, at::Tensor> parameters;  // as forward reads them
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
    auto parameters = rank.read_parameters();
    if (groups.world.rank() == 0) out.parameters = std::move(parameters);
  });
  out.state = test::join(owned);
  return out;
}

// Two blocks whose parameters are several pages, and a frozen weight. forward(x [batch, 5]) -> [batch, 3]
torch::jit::Module make_wide_net() {
  const auto block = [](uint64_t seed) {
    return test::compile({"Block",
                          "def forward(self, x):\n    return torch.matmul(torch.tanh(torch.matmul(x, self.up)), "
                          "self.down) + x\n",
                          {{"up", test::random_weight({5, 1000}, seed)},
                           {"down", test::random_values({1000, 5}, seed + 1, 0.02).set_requires_grad(true)}}});
  };
  const auto blocks = test::compile({.type = "Blocks",
                                     .source = "def forward(self, x):\n    return x\n",
                                     .children = {{"0", block(10)}, {"1", block(20)}}});
  return test::compile({"WideNet",
                        R"(
    def forward(self, x):
        x = getattr(self.blocks, "0").forward(x)
        x = getattr(self.blocks, "1").forward(x)
        return torch.matmul(torch.matmul(x, self.frozen), self.head)
  )",
                        {{"frozen", test::random_values({5, 5}, 2, 0.4)}, {"head", test::random_weight({5, 3}, 3)}},
                        {},
                        {{"blocks", blocks}}});
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
  CHECK(std::equal(got.norms.begin(), got.norms.end(), want.norms.begin(), want.norms.end(),
                   [](double a, double b) { return a == b || (std::isnan(a) && std::isnan(b)); }));
  CHECK(test::first_difference(got.state, want.state) == "");
  for (const auto& [name, values] : want.parameters) {  // a frozen one may be in the model there
    INFO(name);
    CHECK(at::equal(got.parameters.at(name), values));
  }
}

// Small buffers, so that a unit takes several of them and they go round.
json parameters_in_files(const std::string& directory, const json& more = json::object()) {
  return in_files(directory, test::with({{"max_in_cpu", 0}, {"buffer_size", 2048}, {"buffer_count", 3}}, more));
}

struct DiskFault {
  bool is_write = false;
  int error = 0;  // errno
};

// The disk works for one step and then fails.
void expect_failed_step(const test::JobFiles& job, const json& config, const test::TempDir& swap, DiskFault fault) {
  test::run_mesh({.data = 1}, [&](const comm::Groups& groups) {
    std::atomic<bool> is_broken{false};
    test::JobRank rank(job.model, config, groups, with_faults([&](const file_io::Block& block) {
                         return is_broken && block.is_write == fault.is_write ? std::optional<int64_t>(-fault.error)
                                                                              : std::nullopt;
                       }));
    rank.step();
    rank.owned_state();  // the update has been written
    is_broken = true;
    const std::vector<std::string> words{fault.is_write ? "write" : "read", "at offset", swap.path(),
                                         describe_errno(fault.error)};
    test::expect_error(ExitCode::kIoError, words, [&] {
      rank.step();
      rank.owned_state();
    });
  });
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
  expect_failed_step(job, config, swap, {is_write, error});
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
    const auto checkpoints = rank.checkpoints(job.model, run.path(), groups, store);
    rank.step();
    checkpoints->save({}, /*wait=*/true);
    const auto saved = rank.owned_state();
    rank.step();
    rank.owned_state();
    is_broken = true;
    test::expect_error(ExitCode::kIoError, {"read", "at offset", swap.path(), "earlier checkpoints are unchanged"},
                       [&] { checkpoints->save({}, /*wait=*/true); });
    is_broken = false;
    CHECK(checkpoints->resume("auto") == DataPosition{});
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

TEST_CASE("parameters in files change no bit of a run", "[runtime][engine][offload]") {
  const test::JobFiles job(make_wide_net());
  const test::TempDir swap, other;
  const int ranks = GENERATE(1, 2);
  const auto precision = GENERATE(json::object(), json{{"bf16", {{"enabled", true}}}});
  const json common = test::with(precision, {{"gradient_accumulation_steps", 2}, {"gradient_clipping", 0.3}});
  const std::vector<json> keys{
      json::object(),
      {{"buffer_count", 1}},
      {{"buffer_size", 1}},
      {{"buffer_size", 100'000'000}},
      {{"max_in_cpu", 6000}},
      {{"max_in_cpu", 1'000'000}},
      {{"nvme_path", json::array({swap.path(), other.path()})}, {"pin_memory", true}},
  };
  const std::vector<json> states{
      json::object(),
      {{"offload_optimizer", {{"device", "cpu"}}}},
      {{"offload_optimizer", {{"device", "cpu"}, {"ratio", 0.5}}}},
      {{"offload_optimizer", in_files(swap.path(), {{"pipeline_read", true}, {"pipeline_write", true}})},
       {"sub_group_size", 5000}},
  };
  const auto number = GENERATE(range(size_t{0}, size_t{10}));
  const json &key = keys[number % 7], &state = states[number < 7 ? number % 4 : number - 6];
  const json stored = test::with({{"offload_param", parameters_in_files(swap.path(), key)}}, state);
  check_same(job, job.config(zero(3, stored), common), job.config(zero(3, json::object()), common), ranks);
  CHECK(std::filesystem::is_empty(swap.path()));
}

TEST_CASE("each gather reads its parameters from the file once, the first ones before their step",
          "[runtime][engine][offload]") {
  const test::JobFiles job(make_wide_net());
  const test::TempDir swap;
  const bool is_one_slot = GENERATE(false, true);
  const int count = GENERATE(1, 2, 5);  // buffers
  const json slots = is_one_slot ? json{{"stage3_max_live_parameters", 1}} : json::object();
  const json more{{"offload_optimizer", {{"device", "cpu"}}},
                  {"offload_param", parameters_in_files(swap.path(), {{"buffer_count", count}})}};
  const auto config = job.config(zero(3, test::with(slots, more)));
  test::run_mesh({.data = 1}, [&](const comm::Groups& groups) {
    std::mutex mutex;
    std::condition_variable changed;
    int64_t pages = 0;
    test::JobRank rank(job.model, config, groups, with_faults([&](const file_io::Block& block) {
                         const std::lock_guard lock(mutex);
                         pages += block.is_write ? 0 : block.bytes / 4096;
                         changed.notify_all();
                         return std::optional<int64_t>();
                       }));
    {
      const std::lock_guard lock(mutex);
      pages = 0;  // loading has read those that it filled in part
    }
    const auto check_pages = [&](int64_t want) {
      std::unique_lock lock(mutex);
      CHECK(changed.wait_for(lock, std::chrono::seconds(20), [&] { return pages >= want; }));
      CHECK(pages == want);
    };
    // Two blocks of ten pages, the root's two; with one slot, backward reads the first block again. Then what the next
    // pass reads first, as its update has been written: a page each of the root, two pages each of the first block.
    const int64_t of_step = is_one_slot ? 32 : 22, ahead = count <= 2 ? count : 2 + 2 * (count - 2);
    for (int step = 1; step <= 3; ++step) {
      rank.step();  // the first one records the order
      rank.owned_state();
      check_pages(step * of_step + ahead);
    }
    for (int pass = 1; pass <= 3; ++pass) {  // as an evaluation; the first one records its order
      rank.read_parameters();
      check_pages(3 * of_step + pass * 22 + ahead);
    }
  });
}

TEST_CASE("parameters in files are quantized and gathered as those on the device", "[runtime][engine]") {
  const test::JobFiles job(make_wide_net());
  const test::TempDir swap;
  const json keys = GENERATE(json{{"zero_quantized_nontrainable_weights", true}},
                             json{{"zero_quantized_weights", true}, {"stage3_prefetch_bucket_size", 0}},
                             json{{"stage3_max_live_parameters", 1}}, json{{"overlap_comm", false}});
  const json common{{"gradient_accumulation_steps", 2}};
  const json stored = test::with(keys, {{"offload_param", parameters_in_files(swap.path())}});
  check_same(job, job.config(zero(3, stored), common), job.config(zero(3, keys), common), 2);
}

TEST_CASE("a delayed update writes the same parameters to files, to memory and to the device",
          "[runtime][engine][offload]") {
  const test::JobFiles job(make_wide_net());
  const test::TempDir swap;
  const json delayed{{"delayed_update", {{"warmup_steps", 1}}}};
  const json host{{"offload_optimizer", test::with(delayed, {{"device", "cpu"}})}};
  const json files{{"offload_optimizer", in_files(swap.path(), delayed)}, {"sub_group_size", 4096}};
  const json parameters{{"offload_param", parameters_in_files(swap.path())}};
  const json precision = GENERATE(json::object(), json{{"bf16", {{"enabled", true}}}});
  const std::vector<json> others{files, test::with(host, parameters), test::with(files, parameters)};
  const json& other = others[GENERATE(range(size_t{0}, size_t{3}))];
  check_same(job, job.config(zero(3, other), precision), job.config(zero(3, host), precision), 2);
}

TEST_CASE("a skipped step leaves parameters in files alone", "[runtime][engine][offload]") {
  const test::JobFiles job(make_wide_net());
  const test::TempDir swap;
  // The scale overflows at first.
  const json fp16{{"fp16", {{"enabled", true}, {"initial_scale_power", 18}, {"hysteresis", 1}}}};
  json stored{{"offload_param", parameters_in_files(swap.path())}};
  if (GENERATE(false, true)) stored["offload_optimizer"] = in_files(swap.path());
  check_same(job, job.config(zero(3, stored), fp16), job.config(zero(3, json::object()), fp16), 2);
}

TEST_CASE("an evaluation reads parameters in files, and needs no other state", "[runtime][engine][offload]") {
  const test::JobFiles job(make_wide_net());
  const test::TempDir swap;
  const json precision = GENERATE(json::object(), json{{"bf16", {{"enabled", true}}}});
  const auto read = [&](const json& changes) {
    std::map<std::string, at::Tensor> out;
    test::run_mesh({.data = 2}, [&](const comm::Groups& groups) {
      EngineOptions options;
      options.for_evaluation = true;
      test::JobRank rank(job.model, job.config(zero(3, changes), precision), groups, options);
      rank.read_parameters();  // the order of the units is known from now on
      const auto parameters = rank.read_parameters();
      if (groups.world.rank() == 0) out = parameters;
    });
    return out;
  };
  const auto want = read(json::object()), got = read({{"offload_param", parameters_in_files(swap.path())}});
  CHECK(want.size() == 6);
  for (const auto& [name, values] : want) CHECK(at::equal(got.at(name), values));
}

TEST_CASE("a failing disk under parameters ends the run with its offset", "[runtime][engine][offload]") {
  const test::JobFiles job(make_wide_net());
  const test::TempDir swap, memory;
  const bool is_write = GENERATE(false, true);
  const int error = GENERATE(EIO, ENOSPC);
  const auto config = job.config(
      zero(3, {{"offload_optimizer", {{"device", "cpu"}}}, {"offload_param", parameters_in_files(swap.path())}}));
  expect_failed_step(job, config, swap, {is_write, error});
}

TEST_CASE("short reads and writes of parameters are continued", "[runtime][engine][offload]") {
  const test::JobFiles job(make_wide_net());
  const test::TempDir swap;
  const auto want = train(job.model, job.config(zero(3, json::object())), 1);
  const auto config = job.config(
      zero(3, {{"offload_optimizer", {{"device", "cpu"}}}, {"offload_param", parameters_in_files(swap.path())}}));
  test::run_mesh({.data = 1}, [&](const comm::Groups& groups) {
    std::atomic<int> number{0};
    test::JobRank rank(job.model, config, groups,
                       with_faults([&](const file_io::Block& block) -> std::optional<int64_t> {
                         const int kind = number++ % 3;
                         if (kind == 0) return -EINTR;
                         if (kind == 1 && block.bytes > 512) return 512;
                         return std::nullopt;
                       }));
    for (int step = 0; step < 4; ++step) CHECK(rank.step().loss == want.losses[static_cast<size_t>(step)]);
    CHECK(test::first_difference(test::join({rank.owned_state()}), want.state) == "");
  });
}

TEST_CASE("a run with parameters in files resumes from any other, and any other from it",
          "[runtime][engine][offload]") {
  const test::JobFiles job(make_wide_net());
  const test::TempDir swap, run;
  const auto resident = job.config(zero(3, json::object()));
  const auto stored = job.config(
      zero(3, {{"offload_optimizer", in_files(swap.path())}, {"offload_param", parameters_in_files(swap.path())}}));
  const bool begins_stored = GENERATE(false, true);
  const Trained want = train(job.model, resident, 1);
  test::MemoryStore store;
  test::run_mesh({.data = 1}, [&](const comm::Groups& groups) {
    const auto checkpoints_of = [&](test::JobRank& rank) {
      return rank.checkpoints(job.model, run.path(), groups, store);
    };
    test::JobRank first(job.model, begins_stored ? stored : resident, groups);
    first.step();
    first.step();
    const auto saved = checkpoints_of(first);
    saved->save({}, /*wait=*/true);
    test::JobRank second(job.model, begins_stored ? resident : stored, groups);
    second.step();
    second.step();  // whatever it has is replaced
    const auto restored = checkpoints_of(second);
    restored->resume("auto");
    CHECK(second.step().loss == want.losses[2]);
    CHECK(second.step().loss == want.losses[3]);
  });
}
