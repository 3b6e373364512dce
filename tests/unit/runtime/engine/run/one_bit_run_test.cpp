// Whole runs with the optimizers that exchange one bit for each element: 1-bit Adam against its formula, and resuming.
#include <ATen/ATen.h>
#include <torch/torch.h>

#include <catch2/catch.hpp>
#include <cmath>

#include "support/expect_error.hpp"
#include "support/job_run.hpp"
#include "support/one_bit_mean.hpp"

using namespace dslaunch;
using test::Exact;
using test::JobFiles;
using test::JobRun;
using test::json;

namespace {

json one_bit(const char* type, const json& params) {
  return {{"optimizer", {{"type", type}, {"params", params}}},
          {"zero_optimization", {{"stage", 0}}},
          {"checkpoint", {{"interval", 3}, {"keep_last", 5}}}};
}

JobRun run_of(const JobFiles& files, const std::string& name, int ranks, int64_t steps, const json& changes) {
  return {files.model, files.folder / name, files.config(changes, {{"train", {{"steps", steps}}}}), ranks};
}

Exact values_of(const at::Tensor& tensor) {
  const at::Tensor flat = tensor.detach().to(at::kDouble).reshape({-1}).contiguous();
  return {flat.const_data_ptr<double>(), flat.const_data_ptr<double>() + flat.numel()};
}

at::Tensor tensor_of(const Exact& values, at::IntArrayRef shape) {
  return at::tensor(values, at::kDouble).view(shape);
}

// 1-bit Adam on two ranks in doubles: what each has as its gradient is autograd's for its own rows.
struct OneBitAdam {
  static constexpr int kRanks = 2;
  static constexpr double kRate = 0.05, kDecay = 0.1, kBeta1 = 0.8, kBeta2 = 0.95, kEps = 0.01;

  const JobFiles& files;
  const int64_t freeze_step;
  const double max_norm;
  test::Parameters parameters;
  std::map<std::string, at::Tensor> m, v;
  std::map<std::string, test::OneBitMean> means;

  OneBitAdam(const JobFiles& of, int64_t freeze, double clip) : files(of), freeze_step(freeze), max_norm(clip) {
    for (const auto& [name, value] : test::plain_parameters(test::make_mixed_net())) {
      parameters[name] = value.detach().to(at::kDouble).set_requires_grad(value.requires_grad());
      if (!value.requires_grad()) continue;
      m[name] = at::zeros_like(parameters[name]);
      v[name] = at::zeros_like(parameters[name]);
      means.emplace(name, test::OneBitMean(kRanks, static_cast<size_t>((value.numel() + 15) / 16 * 16)));
    }
  }

  std::map<std::string, at::Tensor> gradients(const std::pair<at::Tensor, at::Tensor>& batch) {
    for (auto& [name, value] : parameters) value.mutable_grad() = at::Tensor();
    at::mse_loss(test::plain_mixed_net(parameters, batch.first, at::kDouble), batch.second.to(at::kDouble)).backward();
    std::map<std::string, at::Tensor> out;
    for (const auto& [name, moment] : m) out[name] = parameters[name].grad().clone();
    return out;
  }

  // Returns the norm: of the mean, or of the ranks' own gradients the root mean square.
  double step(int64_t t) {
    const bool averages = t <= freeze_step;
    const auto batches = files.micro_batches((t - 1) % 5, JobFiles::kTrainBatch / kRanks);
    const auto first = gradients(batches.at(0)), second = gradients(batches.at(1));
    double squares = 0;
    for (const auto& [name, g] : first) {
      const at::Tensor& h = second.at(name);
      squares += (averages ? ((g + h) / 2).square() : (g.square() + h.square()) / 2).sum().item<double>();
    }
    const double norm = std::sqrt(squares), factor = max_norm > 0 && norm > max_norm ? max_norm / norm : 1.0;
    const at::NoGradGuard no_grad;
    for (auto& [name, moment] : m) {
      const at::Tensor g = first.at(name) * factor, h = second.at(name) * factor;
      if (averages) {
        const at::Tensor mean = (g + h) / 2;
        moment = moment * kBeta1 + mean * (1 - kBeta1);
        v[name] = v[name] * kBeta2 + mean.square() * (1 - kBeta2);
      } else {
        const at::Tensor one = moment * kBeta1 + g * (1 - kBeta1), other = moment * kBeta1 + h * (1 - kBeta1);
        moment = tensor_of(means.at(name).mean({values_of(one), values_of(other)}), moment.sizes());
      }
      at::Tensor p = parameters[name];
      p.sub_((moment / (v[name].sqrt() + kEps) + p * kDecay) * kRate);
    }
    return norm;
  }
};

}  // namespace

TEST_CASE("a run of 1-bit Adam on two ranks is its formula", "[runtime][engine][one_bit]") {
  const double max_norm = GENERATE(0.0, 0.05);
  INFO("clipping " << max_norm);
  const JobFiles files(test::make_mixed_net());
  json changes = one_bit("OneBitAdam", {{"freeze_step", 3}});
  changes["gradient_clipping"] = max_norm;
  const auto run = run_of(files, "run", 2, 9, changes);
  test::run_job(run);
  OneBitAdam expected(files, 3, max_norm);
  const auto metrics = test::metrics_of(run.run_dir);
  REQUIRE(metrics.size() == 9);
  for (int64_t step = 1; step <= 9; ++step) {
    INFO("step " << step);
    CHECK(metrics[static_cast<size_t>(step - 1)].at("grad_norm").get<double>() ==
          Approx(expected.step(step)).epsilon(1e-4));
  }
  const auto states = test::states_of(checkpoint_of(run, 9));
  const auto is_close = [&](const std::string& name, const char* state, const at::Tensor& value) {
    INFO(state << " of " << name);
    CHECK(at::allclose(states.at({name, state}).to(at::kDouble), value.detach().reshape({-1}), 1e-4, 1e-5));
  };
  for (const auto& [name, moment] : expected.m) {
    is_close(name, "master", expected.parameters.at(name));
    is_close(name, "exp_avg", moment);
    is_close(name, "exp_avg_sq", expected.v.at(name));
  }
}

TEST_CASE("runs of 1-bit optimizers resume, on the same ranks bit for bit until an exchange",
          "[runtime][engine][one_bit]") {
  const auto [type, params, states_kept] = GENERATE(table<const char*, json, std::vector<const char*>>({
      {"OneBitAdam", {{"freeze_step", 4}}, {"exp_avg", "exp_avg_sq"}},
      {"OneBitLamb",
       {{"freeze_step", 4}},
       {"exp_avg", "exp_avg_sq", "exp_avg_sq_fresh", "lamb_coeff_freeze", "last_factor"}},
      {"ZeroOneAdam",
       {{"var_freeze_step", 5}, {"var_update_scaler", 4}, {"local_step_scaler", 2}, {"local_step_clipper", 2}},
       {"exp_avg", "exp_avg_sq"}},
  }));
  INFO(type);
  const JobFiles files(test::make_mixed_net());
  const json changes = one_bit(type, params);
  const auto whole = run_of(files, "whole", 2, 9, changes);
  test::run_job(whole);
  const auto second = run_of(files, "second", 2, 9, changes);
  test::run_job(resumed(second, checkpoint_of(whole, 3)));
  const auto saved = test::states_of(checkpoint_of(whole, 9));
  for (const char* state : states_kept) CHECK(saved.contains({"head", state}));
  CHECK(test::first_difference(saved, test::states_of(checkpoint_of(second, 9))) == "");
  // From among the exchanging steps, on other ranks: what they had lost is forgotten.
  for (const int ranks : {1, 2, 3}) {
    const auto later = run_of(files, fmt::format("later{}", ranks), ranks, 9, changes);
    test::run_job(resumed(later, checkpoint_of(whole, 6)));
    const auto metrics = test::metrics_of(later.run_dir), expected = test::metrics_of(whole.run_dir);
    REQUIRE(metrics.size() == 3);
    INFO(ranks << " ranks");
    CHECK(metrics[0].at("loss").get<double>() == Approx(expected[6].at("loss").get<double>()).epsilon(0.05));
    CHECK(std::isfinite(metrics[2].at("loss").get<double>()));
  }
}

// The first steps overflow and do not count: the warm-up has as many applied steps as it says.
TEST_CASE("the phases of a 1-bit optimizer count applied steps", "[runtime][engine][one_bit]") {
  const JobFiles files(test::make_mixed_net());
  json changes = one_bit("OneBitAdam", {{"freeze_step", 3}});
  changes["fp16"] = {{"enabled", true}, {"initial_scale_power", 17}, {"loss_scale_window", 100}, {"hysteresis", 1}};
  const auto run = run_of(files, "run", 2, 9, changes);
  test::run_job(run);
  const auto metrics = test::metrics_of(run.run_dir);
  int64_t num_applied = 0;
  for (const auto& each : metrics) num_applied += each.at("overflow").get<bool>() ? 0 : 1;
  REQUIRE((num_applied > 3 && num_applied < 9));
  // The variance is that of three applied steps: a run that ends with them has the same.
  int64_t third = 0, counted = 0;
  for (; counted < 3; ++third) counted += metrics[static_cast<size_t>(third)].at("overflow").get<bool>() ? 0 : 1;
  const auto shorter = run_of(files, "shorter", 2, third, changes);
  test::run_job(shorter);
  const auto all = test::states_of(checkpoint_of(run, 9)), warm = test::states_of(checkpoint_of(shorter, third));
  CHECK(at::equal(all.at({"head", "exp_avg_sq"}), warm.at({"head", "exp_avg_sq"})));
  CHECK_FALSE(at::equal(all.at({"head", "exp_avg"}), warm.at({"head", "exp_avg"})));
}
