// Whole training steps of an engine on one to three ranks (threads) against plain LibTorch in the same process: what
// every stage of ZeRO, every way to reduce and gather, and every precision must come to.
#include <ATen/ATen.h>
#include <torch/torch.h>

#include <catch2/catch.hpp>
#include <cmath>
#include <exception>

#include "base/scope_exit.hpp"
#include "support/job_files.hpp"
#include "support/job_rank.hpp"
#include "support/mesh_threads.hpp"
#include "support/mixed_net.hpp"

using namespace dslaunch;
using namespace dslaunch::runtime;
using namespace dslaunch::runtime::engine::step;
using test::json;

namespace {

constexpr int64_t kTrainBatch = test::JobFiles::kTrainBatch, kSteps = 4;

json adam_of_stage(int stage, const json& zero = json::object()) {
  return {{"zero_optimization", test::with({{"stage", stage}, {"stage3_param_persistence_threshold", 0}}, zero)}};
}

struct Trained {
  std::vector<StepResult> steps;
  test::States state;
  std::vector<std::map<std::string, at::Tensor>> buffers;  // by rank
  std::vector<std::map<std::string, at::Tensor>> read;     // by rank: the parameters that forward reads
};

using Visit = std::function<void(test::JobRank& rank, int64_t steps_done)>;

Trained train(const std::string& model, const json& config, int ranks, int64_t steps = kSteps,
              const Visit& after_step = {}) {
  Trained out;
  out.buffers.resize(static_cast<size_t>(ranks));
  out.read.resize(static_cast<size_t>(ranks));
  std::vector<std::vector<OwnedState>> owned(static_cast<size_t>(ranks));
  test::run_mesh({.data = ranks}, [&](const comm::Groups& groups) {
    const auto index = static_cast<size_t>(groups.world.rank());
    test::JobRank rank(model, config, groups);
    for (int64_t step = 1; step <= steps; ++step) {
      const auto result = rank.step();
      if (index == 0) out.steps.push_back(result);
      if (after_step) after_step(rank, step);
    }
    owned[index] = rank.owned_state();
    for (const auto& [name, value] : rank.model->tensors.buffers()) out.buffers[index][name] = value.clone();
    out.read[index] = rank.read_parameters();
  });
  out.state = test::join(owned);
  return out;
}

bool is_close(const at::Tensor& a, const at::Tensor& b, double tolerance = 1e-5) {
  return at::allclose(a.reshape({-1}), b.reshape({-1}), tolerance, tolerance);
}

void check_masters(const Trained& trained, const test::Parameters& parameters, double tolerance) {
  for (const auto& [name, value] : parameters) {
    if (!value.requires_grad()) continue;
    INFO(name);
    const at::Tensor error = (trained.state.at({name, "master"}) - value.reshape({-1})).abs().max();
    CHECK(error.item<double>() <= tolerance);
  }
}

// Trains the mixed net by LibTorch's AdamW beside the engine's result and compares all that both have.
void check_against_adamw(const test::JobFiles& job, const Trained& trained, int64_t rows, double max_norm) {
  const auto parameters = test::plain_parameters(test::make_mixed_net());
  const auto leaves = test::trainable(parameters);
  torch::optim::AdamW adam(leaves, torch::optim::AdamWOptions(0.05).betas({0.8, 0.95}).eps(0.01).weight_decay(0.1));
  const auto loss = [&](const at::Tensor& x, const at::Tensor& y) {
    return at::mse_loss(test::plain_mixed_net(parameters, x), y);
  };
  for (int64_t step = 0; step < kSteps; ++step) {
    const auto plain = test::plain_step(adam, leaves, loss, job.micro_batches(step, rows), max_norm);
    INFO("step " << step);
    CHECK(trained.steps.at(static_cast<size_t>(step)).loss == Approx(plain.loss).epsilon(1e-5));
    CHECK(trained.steps.at(static_cast<size_t>(step)).grad_norm == Approx(plain.grad_norm).epsilon(1e-5));
  }
  size_t num_states = 0;
  for (const auto& [name, value] : parameters) {
    if (!value.requires_grad()) continue;
    INFO(name);
    const auto& moments =
        static_cast<const torch::optim::AdamWParamState&>(*adam.state().at(value.unsafeGetTensorImpl()));
    CHECK(is_close(trained.state.at({name, "master"}), value));
    CHECK(is_close(trained.state.at({name, "exp_avg"}), moments.exp_avg()));
    CHECK(is_close(trained.state.at({name, "exp_avg_sq"}), moments.exp_avg_sq()));
    num_states += 3;
  }
  CHECK(trained.state.size() == num_states);
}

}  // namespace

TEST_CASE("every stage trains as LibTorch does in one process", "[runtime][engine][training]") {
  const int stage = GENERATE(0, 1, 2, 3), ranks = GENERATE(1, 2, 3);
  const double max_norm = GENERATE(0.0, 0.3);
  INFO("stage " << stage << ", " << ranks << " ranks, clipped to " << max_norm);
  const test::JobFiles job(test::make_mixed_net());
  const json changes{{"gradient_accumulation_steps", 2}, {"gradient_clipping", max_norm}};
  const auto trained = train(job.model, job.config(adam_of_stage(stage), changes), ranks);
  check_against_adamw(job, trained, kTrainBatch / ranks / 2, max_norm);
}

TEST_CASE("ways to reduce and to gather change no result", "[runtime][engine][training]") {
  const auto [name, changes] = GENERATE(table<std::string, json>({
      {"small buckets",
       {{"zero_optimization", {{"reduce_bucket_size", 20}, {"allgather_bucket_size", 20}, {"overlap_comm", true}}}}},
      {"no scatter, no gather", {{"zero_optimization", {{"reduce_scatter", false}, {"allgather_partitions", false}}}}},
      {"little memory",
       {{"zero_optimization", {{"stage3_prefetch_bucket_size", 0}, {"stage3_max_live_parameters", 1}}}}},
      {"resident parameters", {{"zero_optimization", {{"stage3_param_persistence_threshold", 10}}}}},
      {"divided first", {{"prescale_gradients", true}}},
      {"divided in part", {{"prescale_gradients", false}, {"gradient_predivide_factor", 4.0}}},
  }));
  const int stage = GENERATE(0, 1, 2, 3);
  INFO(name << ", stage " << stage);
  const test::JobFiles job(test::make_mixed_net());
  auto config = test::with(adam_of_stage(stage), {{"gradient_clipping", 0.3}, {"gradient_accumulation_steps", 2}});
  const auto trained = train(job.model, job.config(config, changes), 2);
  check_against_adamw(job, trained, kTrainBatch / 2 / 2, 0.3);
}

TEST_CASE("groups of the optimizer share buckets and keep their settings", "[runtime][engine][training]") {
  const int stage = GENERATE(0, 1, 2, 3), ranks = GENERATE(1, 3);
  INFO("stage " << stage << ", " << ranks << " ranks");
  const test::JobFiles job(test::make_mixed_net());
  const auto trained =
      train(job.model, job.config(adam_of_stage(stage), {{"optimizer", {{"no_decay", {"*bias"}}}}}), ranks);
  const auto parameters = test::plain_parameters(test::make_mixed_net());
  std::vector<torch::optim::OptimizerParamGroup> groups;
  for (const auto& [name, value] : parameters) {
    if (!value.requires_grad()) continue;
    auto options = std::make_unique<torch::optim::AdamWOptions>(0.05);
    options->betas({0.8, 0.95}).eps(0.01).weight_decay(name.ends_with("bias") ? 0.0 : 0.1);
    groups.emplace_back(std::vector<at::Tensor>{value}, std::move(options));
  }
  torch::optim::AdamW adam(groups, torch::optim::AdamWOptions(0.05));
  const auto loss = [&](const at::Tensor& x, const at::Tensor& y) {
    return at::mse_loss(test::plain_mixed_net(parameters, x), y);
  };
  for (int64_t step = 0; step < kSteps; ++step) {
    test::plain_step(adam, test::trainable(parameters), loss, job.micro_batches(step, kTrainBatch), 0);
  }
  check_masters(trained, parameters, 1e-5);
}

TEST_CASE("every rank reads the masters' values, and frozen parameters as they were", "[runtime][engine][training]") {
  const int stage = GENERATE(0, 1, 2, 3);
  INFO("stage " << stage);
  const test::JobFiles job(test::make_mixed_net());
  const auto trained = train(job.model, job.config(adam_of_stage(stage)), 3);
  for (const auto& read : trained.read) {
    for (const auto& [key, values] : trained.state) {
      if (key.second == "master") CHECK(read.at(key.first).reshape({-1}).equal(values));
    }
    if (stage == 3) CHECK(read.at("frozen").equal(test::random_values({5, 5}, 2, 0.4)));
  }
}

TEST_CASE("the first step of SGD is the learning rate times the mean gradient", "[runtime][engine][training]") {
  const int stage = GENERATE(0, 1, 2, 3);
  INFO("stage " << stage);
  const test::JobFiles job(test::make_mixed_net());
  const json sgd{
      {"optimizer",
       {{"type", "SGD"},
        {"params",
         {{"lr", 0.5}, {"betas", nullptr}, {"eps", nullptr}, {"weight_decay", nullptr}, {"momentum", 0.9}}}}}};
  const auto trained =
      train(job.model, job.config(adam_of_stage(stage), sgd, {{"gradient_accumulation_steps", 3}}), 2, 1);
  const auto parameters = test::plain_parameters(test::make_mixed_net());
  at::mse_loss(test::plain_mixed_net(parameters, job.x.narrow(0, 0, kTrainBatch)), job.y.narrow(0, 0, kTrainBatch))
      .backward();
  for (const auto& [name, value] : parameters) {
    if (!value.requires_grad()) continue;
    INFO(name);
    CHECK(is_close(trained.state.at({name, "master"}), value.detach() - 0.5 * value.grad()));
    CHECK(is_close(trained.state.at({name, "momentum"}), value.grad()));
  }
}

namespace {

// Training of the mixed net by SGD with gradients in 16 bits and fp32 masters, as a single process would do it.
struct PlainHalf {
  const test::JobFiles& job;
  at::ScalarType dtype;
  double lr, scale;
  int64_t rows;
  test::Parameters parameters = test::plain_parameters(test::make_mixed_net());

  // True when the step was skipped.
  bool step(int64_t number) {
    for (const auto& p : test::trainable(parameters)) p.mutable_grad() = at::Tensor();
    const auto batches = job.micro_batches(number, rows);
    for (const auto& [x, y] : batches) {
      // Each micro batch's gradient is computed in 16 bits with the whole loss scale.
      (at::mse_loss(test::plain_mixed_net(parameters, x, dtype).to(at::kFloat), y) * scale).backward();
    }
    for (const auto& p : test::trainable(parameters)) {
      if (!p.grad().isfinite().all().item<bool>()) return true;
    }
    const at::NoGradGuard no_grad;
    for (auto& p : test::trainable(parameters)) {
      p.sub_(p.grad(), lr / scale / static_cast<double>(batches.size()));
    }
    return false;
  }
};

json plain_sgd(double lr) {
  return {
      {"optimizer",
       {{"type", "SGD"}, {"params", {{"lr", lr}, {"betas", nullptr}, {"eps", nullptr}, {"weight_decay", nullptr}}}}}};
}

}  // namespace

TEST_CASE("a step whose gradients overflow fp16 is skipped and halves the loss scale", "[runtime][engine][training]") {
  const auto [stage, num_ranks] = GENERATE(table<int, int>({{0, 1}, {1, 2}, {2, 2}, {3, 2}}));
  const int ranks = num_ranks;  // a lambda cannot capture the binding
  INFO("stage " << stage << ", " << ranks << " ranks");
  const test::JobFiles job(test::make_mixed_net());
  const json fp16{{"fp16", {{"enabled", true}, {"initial_scale_power", 18}, {"hysteresis", 1}}}};
  const auto config = job.config(adam_of_stage(stage), plain_sgd(0.1), fp16);
  std::vector<test::States> after(5);
  const auto trained = train(job.model, config, ranks, 5, [&](test::JobRank& rank, int64_t steps_done) {
    if (ranks == 1) after[static_cast<size_t>(steps_done - 1)] = test::join({rank.owned_state()});
  });
  PlainHalf plain{job, at::kHalf, 0.1, std::ldexp(1.0, 18), kTrainBatch / ranks};
  int64_t num_skipped = 0;
  for (int64_t step = 0; step < 5; ++step) {
    const auto& result = trained.steps[static_cast<size_t>(step)];
    const bool skips = plain.step(step);
    INFO("step " << step << ", scale " << plain.scale);
    CHECK(result.overflow == skips);
    CHECK(result.loss_scale == plain.scale);
    num_skipped += skips;
    if (skips) plain.scale /= 2;
    CHECK(result.next_loss_scale == plain.scale);
    CHECK(result.num_skipped == num_skipped);
    if (ranks == 1 && skips && step > 0) {
      CHECK(test::first_difference(after[static_cast<size_t>(step)], after[static_cast<size_t>(step - 1)]).empty());
    }
  }
  CHECK((num_skipped > 0 && num_skipped < 5));
  check_masters(trained, plain.parameters, 2e-3 * 0.1 * 5);
}

TEST_CASE("bf16 gradients move fp32 masters", "[runtime][engine][training]") {
  const auto [stage, ranks] = GENERATE(table<int, int>({{1, 1}, {0, 3}, {2, 3}, {3, 3}}));
  INFO("stage " << stage << ", " << ranks << " ranks");
  const test::JobFiles job(test::make_mixed_net());
  const json bf16{{"bf16", {{"enabled", true}}}};
  const auto trained = train(job.model, job.config(adam_of_stage(stage), plain_sgd(0.1), bf16), ranks);
  PlainHalf plain{job, at::kBFloat16, 0.1, 1, kTrainBatch / ranks};
  for (int64_t step = 0; step < kSteps; ++step) CHECK_FALSE(plain.step(step));
  check_masters(trained, plain.parameters, 0x1p-7 * 0.1 * kSteps);
  const at::Tensor head = trained.state.at({"head", "master"});
  CHECK_FALSE(head.equal(head.to(at::kBFloat16).to(at::kFloat)));
  for (const auto& read : trained.read) {
    CHECK(read.at("head").scalar_type() == at::kBFloat16);
    CHECK(read.at("head").reshape({-1}).equal(head.to(at::kBFloat16)));
  }
}

TEST_CASE("without fp32 masters the parameters exist in 16 bits only", "[runtime][engine][training]") {
  const test::JobFiles job(test::make_mixed_net());
  const json amp{{"amp", {{"enabled", true}, {"opt_level", "O3"}}}};
  const auto trained = train(job.model, job.config(adam_of_stage(1), plain_sgd(0.1), amp), 2);
  for (const auto& [key, values] : trained.state) {
    if (key.second == "master") CHECK(values.equal(values.to(at::kHalf).to(at::kFloat)));
  }
  CHECK(trained.steps.back().loss < trained.steps.front().loss * 1.5);
}

TEST_CASE("under autocast fp32 parameters are computed with in 16 bits", "[runtime][engine][training]") {
  const auto [stage, ranks] = GENERATE(table<int, int>({{0, 1}, {1, 3}, {3, 3}}));
  INFO("stage " << stage << ", " << ranks << " ranks");
  const test::JobFiles job(test::make_mixed_net());
  const json autocast{{"torch_autocast", {{"enabled", true}, {"dtype", "bfloat16"}}}};
  const auto trained = train(job.model, job.config(adam_of_stage(stage), plain_sgd(0.1), autocast), ranks);
  PlainHalf plain{job, at::kBFloat16, 0.1, 1, kTrainBatch / ranks};
  for (int64_t step = 0; step < kSteps; ++step) CHECK_FALSE(plain.step(step));
  check_masters(trained, plain.parameters, 0x1p-7 * 0.1 * kSteps);
  for (const auto& read : trained.read) {
    CHECK(read.at("head").reshape({-1}).equal(trained.state.at({"head", "master"})));
  }
}

TEST_CASE("parameters that a host keeps in parts (hpZ) are those of the step", "[runtime][engine][training]") {
  const test::JobFiles job(test::make_mixed_net());
  const auto config = job.config(adam_of_stage(3, {{"zero_hpz_partition_size", 2}}),
                                 {{"gradient_accumulation_steps", 3}, {"gradient_clipping", 0.3}});
  const std::vector<std::shared_ptr<test::ThreadGroup>> hosts{std::make_shared<test::ThreadGroup>(2),
                                                              std::make_shared<test::ThreadGroup>(2)};
  std::vector<std::vector<OwnedState>> owned(4);
  Trained trained;
  test::run_mesh({.data = 4}, [&](const comm::Groups& groups) {
    const auto index = static_cast<size_t>(groups.world.rank());
    const auto& host = hosts[index / 2];
    test::ThreadCommunicator secondary(host, static_cast<int>(index % 2));
    const ScopeExit release_host([&] {
      if (std::uncaught_exceptions() > 0) host->abort();
    });
    EngineOptions options;
    options.secondary_group = &secondary;
    test::JobRank rank(job.model, config, groups, options);
    for (int64_t step = 0; step < kSteps; ++step) {
      const auto result = rank.step();
      if (index == 0) trained.steps.push_back(result);
    }
    owned[index] = rank.owned_state();
  });
  trained.state = test::join(owned);
  check_against_adamw(job, trained, kTrainBatch / 4 / 3, 0.3);
}

TEST_CASE("recomputed units train as those that keep their activations", "[runtime][engine][training]") {
  const int stage = GENERATE(0, 1, 2, 3);
  const bool on_host = GENERATE(false, true);
  INFO("stage " << stage);
  const test::JobFiles job(test::make_mixed_net());
  const auto config = job.config(test::with(adam_of_stage(stage), {{"gradient_accumulation_steps", 2}}));
  const auto plain = train(job.model, config, 2);
  std::string profile;
  const json recomputation{
      {"activation_checkpointing", {{"enabled", true}, {"profile", true}, {"cpu_checkpointing", on_host}}}};
  const auto recomputed =
      train(job.model, test::with(config, recomputation), 2, kSteps, [&](test::JobRank& rank, int64_t) {
        if (rank.data.loader.rank == 0) profile = rank.model->runnable->take_recomputation_profile();
      });
  CHECK_THAT(profile, Catch::Contains("recomputation: 4 calls"));
  CHECK(test::first_difference(plain.state, recomputed.state).empty());
  for (size_t i = 0; i < plain.steps.size(); ++i) CHECK(plain.steps[i].loss == recomputed.steps[i].loss);
}

namespace {

torch::jit::Module make_norm_net() {
  return test::compile({"NormNet",
                        R"(
    def forward(self, x):
        x = torch.batch_norm(x, self.weight, self.bias, self.running_mean, self.running_var, self.training, 0.1, 1e-5, False)
        return torch.matmul(x, self.head)
  )",
                        {{"weight", test::random_weight({5}, 1)},
                         {"bias", test::random_weight({5}, 2)},
                         {"head", test::random_weight({5, 3}, 3)}},
                        {{"running_mean", at::zeros({5})}, {"running_var", at::ones({5})}}});
}

at::Tensor plain_norm_net(const test::Parameters& p, const at::Tensor& x, std::pair<at::Tensor, at::Tensor>& running,
                          bool training) {
  const at::Tensor y =
      at::batch_norm(x, p.at("weight"), p.at("bias"), running.first, running.second, training, 0.1, 1e-5, false);
  return at::matmul(y, p.at("head"));
}

}  // namespace

TEST_CASE("every rank keeps the statistics of its own batches", "[runtime][engine][training]") {
  const int stage = GENERATE(0, 1, 2, 3);
  INFO("stage " << stage);
  const test::JobFiles job(make_norm_net());
  const auto config = job.config(adam_of_stage(stage), plain_sgd(0.1), {{"gradient_accumulation_steps", 2}});
  const auto trained = train(job.model, config, 2);

  const auto parameters = test::plain_parameters(make_norm_net());
  std::vector<std::pair<at::Tensor, at::Tensor>> running;
  for (int rank = 0; rank < 2; ++rank) running.emplace_back(at::zeros({5}), at::ones({5}));
  const auto leaves = test::trainable(parameters);
  torch::optim::SGD sgd(leaves, torch::optim::SGDOptions(0.1));
  for (int64_t step = 0; step < kSteps; ++step) {
    size_t micro = 0;  // dealt out slice by slice, rank by rank
    const auto loss = [&](const at::Tensor& x, const at::Tensor& y) {
      return at::mse_loss(plain_norm_net(parameters, x, running[micro++ % 2], true), y);
    };
    const auto plain = test::plain_step(sgd, leaves, loss, job.micro_batches(step, kTrainBatch / 4), 0);
    CHECK(trained.steps[static_cast<size_t>(step)].loss == Approx(plain.loss).epsilon(1e-5));
  }
  check_masters(trained, parameters, 1e-5);
  for (size_t rank = 0; rank < 2; ++rank) {
    CHECK(is_close(trained.buffers[rank].at("running_mean"), running[rank].first));
    CHECK(is_close(trained.buffers[rank].at("running_var"), running[rank].second));
  }
}

TEST_CASE("an evaluation has rank 0's statistics in it and leaves training as it was",
          "[runtime][engine][evaluation]") {
  const int stage = GENERATE(0, 1, 2, 3);
  INFO("stage " << stage);
  const test::JobFiles job(make_norm_net());
  const auto config = job.config(adam_of_stage(stage), plain_sgd(0.1));
  const auto undisturbed = train(job.model, config, 2);
  std::vector<EvaluationResult> results(2);
  std::vector<std::pair<at::Tensor, at::Tensor>> statistics(2);
  test::Parameters parameters;
  std::mutex mutex;
  int rank_number = 0;
  const auto evaluated = train(job.model, config, 2, kSteps, [&](test::JobRank& rank, int64_t steps_done) {
    if (steps_done != 2) return;
    const auto index = static_cast<size_t>(rank.data.loader.rank);
    // Rank 0 has two batches of four and two samples, rank 1 one of four and an empty one.
    std::vector<EvaluationBatch> batches;
    const auto batch = [&](int64_t first, int64_t count, int64_t counted) {
      batches.push_back({{{job.x.narrow(0, first, count)}, {job.y.narrow(0, first, count)}, count, count}, counted});
    };
    if (index == 0) batch(40, 4, 4), batch(44, 2, 2);
    if (index == 1) batch(46, 4, 4), batch(0, 1, 0);
    size_t next = 0;
    const auto result = rank.engine->evaluate(
        [&]() -> std::optional<EvaluationBatch> {
          return next < batches.size() ? std::optional(batches[next++]) : std::nullopt;
        },
        [] { return false; });
    const auto read = rank.read_parameters();
    std::pair<at::Tensor, at::Tensor> running;
    for (const auto& [name, value] : rank.model->tensors.buffers()) {
      (name == "running_mean" ? running.first : running.second) = value.clone();
    }
    const std::lock_guard lock(mutex);
    results[index] = result;
    statistics[index] = running;
    parameters = test::Parameters(read.begin(), read.end());
    rank_number += 1;
  });
  REQUIRE(rank_number == 2);
  const at::NoGradGuard no_grad;
  const at::Tensor x = job.x.narrow(0, 40, 10), y = job.y.narrow(0, 40, 10);
  const double expected = at::mse_loss(plain_norm_net(parameters, x, statistics[0], false), y).item<double>();
  for (const auto& result : results) {
    CHECK(result.loss == Approx(expected).epsilon(1e-5));
    CHECK(result.num_samples == 10);
    CHECK_FALSE(result.stopped);
  }
  CHECK(test::first_difference(undisturbed.state, evaluated.state).empty());
  for (size_t rank = 0; rank < 2; ++rank) {
    for (const auto& [name, value] : undisturbed.buffers[rank]) CHECK(value.equal(evaluated.buffers[rank].at(name)));
  }
}

TEST_CASE("an evaluation of many batches ends when a rank asks for it", "[runtime][engine][evaluation]") {
  const test::JobFiles job(test::make_mixed_net());
  std::vector<EvaluationResult> results(2);
  std::vector<int> num_batches(2);
  train(job.model, job.config(adam_of_stage(0)), 2, 1, [&](test::JobRank& rank, int64_t) {
    const auto index = static_cast<size_t>(rank.data.loader.rank);
    results[index] = rank.engine->evaluate(
        [&]() -> std::optional<EvaluationBatch> {
          if (num_batches[index]++ == 100) return std::nullopt;
          return EvaluationBatch{{{job.x.narrow(0, 0, 1)}, {job.y.narrow(0, 0, 1)}, 1, 1}, 1};
        },
        [&] { return index == 1; });
  });
  for (size_t rank = 0; rank < 2; ++rank) {
    CHECK(results[rank].stopped);
    CHECK(num_batches[rank] < 40);
  }
}

TEST_CASE("by tokens the loss is the mean over all labels that count", "[runtime][engine][training]") {
  const int stage = GENERATE(0, 1, 2, 3);
  INFO("stage " << stage);
  test::TempDir folder;
  const auto make_net = [] {
    return test::compile(
        {"Words",
         "def forward(self, ids):\n    return torch.matmul(torch.embedding(self.table, ids), self.head)\n",
         {{"table", test::random_weight({7, 5}, 1)}, {"head", test::random_weight({5, 7}, 2)}}});
  };
  make_net().save(folder / "net.pt");
  const at::Tensor ids = at::arange(24 * 4).reshape({24, 4}) % 7;
  at::Tensor labels = (ids * 3 + 1) % 7;
  labels.masked_fill_((at::arange(24 * 4).reshape({24, 4}) % 5).lt(at::arange(24).reshape({24, 1}) % 5), -100);
  test::write_samples(folder / "data.safetensors", {{"ids", ids}, {"labels", labels}});
  const json config{{"train_batch_size", 12},
                    {"gradient_accumulation_steps", 2},
                    {"gradient_clipping", 0.5},
                    {"optimizer", {{"type", "SGD"}, {"params", {{"lr", 0.5}}}}},
                    {"zero_optimization", {{"stage", stage}, {"stage3_param_persistence_threshold", 0}}},
                    {"data", {{"train", folder / "data.safetensors"}, {"shuffle", false}, {"num_workers", 0}}},
                    {"loss", "cross_entropy"},
                    {"loss_average", "tokens"},
                    {"train", {{"steps", 2}}}};
  const auto trained = train(folder / "net.pt", config, 3, 2);
  const auto parameters = test::plain_parameters(make_net());
  const auto leaves = test::trainable(parameters);
  torch::optim::SGD sgd(leaves, torch::optim::SGDOptions(0.5));
  for (int64_t step = 0; step < 2; ++step) {
    const auto loss = [&](const at::Tensor& x, const at::Tensor& y) {
      const at::Tensor logits = at::matmul(at::embedding(parameters.at("table"), x), parameters.at("head"));
      return at::cross_entropy_loss(logits.reshape({-1, 7}), y.reshape({-1}));
    };
    const auto plain = test::plain_step(sgd, leaves, loss, test::micro_batches_of(ids, labels, step, 12, 12), 0.5);
    CHECK(trained.steps[static_cast<size_t>(step)].loss == Approx(plain.loss).epsilon(1e-5));
    CHECK(trained.steps[static_cast<size_t>(step)].grad_norm == Approx(plain.grad_norm).epsilon(1e-5));
  }
  check_masters(trained, parameters, 1e-5);
}
