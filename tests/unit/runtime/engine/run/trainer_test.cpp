// Whole runs (engine::run::train) on ranks that are threads: what a run reports, saves and resumes from, and how it
// ends.
#include "runtime/engine/run/trainer.hpp"

#include <ATen/ATen.h>
#include <torch/torch.h>

#include <catch2/catch.hpp>
#include <cmath>
#include <filesystem>
#include <limits>

#include "base/directory_lock.hpp"
#include "runtime/model/torchscript/load_script_model.hpp"
#include "runtime/state/safetensors_file.hpp"
#include "support/captured_output.hpp"
#include "support/expect_error.hpp"
#include "support/job_run.hpp"

using namespace dslaunch;
using namespace dslaunch::runtime;
using Catch::Matchers::Contains;
using Catch::Matchers::StartsWith;
using test::expect_error;
using test::JobFiles;
using test::JobRun;
using test::json;
using test::TrainOutcome;

namespace fs = std::filesystem;

namespace {

json stage(int number) {
  return {{"zero_optimization", {{"stage", number}, {"stage3_param_persistence_threshold", 0}}}};
}

// With the optimizer on the host.
json offloaded_stage(int number) {
  return test::with(stage(number), {{"zero_optimization", {{"offload_optimizer", {{"device", "cpu"}}}}}});
}

// Without progress lines, of `steps` steps.
JobRun run_of(const JobFiles& files, const char* name, int ranks, int64_t steps, const json& changes = stage(1)) {
  return {files.model, files.folder / name, files.config(changes, {{"train", {{"steps", steps}}}}), ranks};
}

// The mixed net after so many steps of LibTorch's AdamW, and the losses of these steps.
struct PlainRun {
  test::Parameters parameters = test::plain_parameters(test::make_mixed_net());
  std::vector<double> losses;

  PlainRun(const JobFiles& files, int64_t steps) {
    const auto leaves = test::trainable(parameters);
    torch::optim::AdamW adam(leaves, torch::optim::AdamWOptions(0.05).betas({0.8, 0.95}).eps(0.01).weight_decay(0.1));
    for (int64_t step = 0; step < steps; ++step) {
      const auto loss = [&](const at::Tensor& x, const at::Tensor& y) {
        return at::mse_loss(test::plain_mixed_net(parameters, x), y);
      };
      losses.push_back(test::plain_step(adam, leaves, loss, files.micro_batches(step % 5, 12), 0).loss);
    }
  }
};

bool is_close(const at::Tensor& a, const at::Tensor& b) {
  return at::allclose(a.reshape({-1}), b.reshape({-1}), 1e-5, 1e-5);
}

}  // namespace

TEST_CASE("a run leaves its metrics, its config and a checkpoint", "[runtime][engine][trainer]") {
  const int zero = GENERATE(0, 3);
  const JobFiles files(test::make_mixed_net());
  const auto run = run_of(files, "run", 2, 7, stage(zero));  // the data ends after step 5 and begins again
  CHECK(test::run_job(run) == TrainOutcome::kFinished);
  const PlainRun plain(files, 7);
  const auto metrics = test::metrics_of(run.run_dir);
  REQUIRE(metrics.size() == 7);
  for (size_t i = 0; i < metrics.size(); ++i) {
    CHECK(metrics[i].at("step") == i + 1);
    CHECK(metrics[i].at("loss").get<double>() == Approx(plain.losses[i]).epsilon(1e-5));
    CHECK(metrics[i].at("lr") == 0.05);
  }
  CHECK(json::parse(test::read_file(run.run_dir + "/config.resolved.json")).at("zero_optimization").at("stage") ==
        zero);
  const auto states = test::states_of(checkpoint_of(run, 7));
  for (const auto& [name, value] : plain.parameters) {
    INFO(name);
    CHECK(is_close(states.at({name, value.requires_grad() ? "master" : "frozen"}), value));
  }
  CHECK(fs::exists(checkpoint_of(run, 7) + "/model.pt"));
}

TEST_CASE("a run that resumes goes on bit for bit", "[runtime][engine][trainer]") {
  const auto [name, precision, ranks] = GENERATE(table<std::string, json, int>({
      {"fp32",
       {{"scheduler", {{"type", "WarmupLR"}, {"params", {{"warmup_num_steps", 5}, {"warmup_max_lr", 0.1}}}}}},
       1},
      {"fp32",
       {{"scheduler", {{"type", "WarmupLR"}, {"params", {{"warmup_num_steps", 5}, {"warmup_max_lr", 0.1}}}}}},
       3},
      {"fp16", {{"fp16", {{"enabled", true}, {"initial_scale_power", 17}, {"loss_scale_window", 2}}}}, 2},
  }));
  const int zero = GENERATE(0, 1, 2, 3);
  INFO(name << ", stage " << zero << ", " << ranks << " ranks");
  const JobFiles files(test::make_mixed_net());
  const json changes = test::with(test::with(stage(zero), precision),
                                  {{"data", {{"shuffle", true}}}, {"checkpoint", {{"interval", 4}, {"keep_last", 5}}}});
  const auto whole = run_of(files, "whole", ranks, 8, changes);
  test::run_job(whole);
  const auto second = run_of(files, "second", ranks, 8, changes);
  test::run_job(resumed(second, checkpoint_of(whole, 4)));
  CHECK(test::first_difference(test::states_of(checkpoint_of(whole, 8)), test::states_of(checkpoint_of(second, 8))) ==
        "");
  const auto expected = test::metrics_of(whole.run_dir), metrics = test::metrics_of(second.run_dir);
  REQUIRE((expected.size() == 8 && metrics.size() == 4));
  for (size_t i = 0; i < 4; ++i) {
    for (const char* key : {"step", "loss", "lr", "grad_norm", "loss_scale", "overflow"}) {
      CHECK(metrics[i].at(key) == expected[i + 4].at(key));
    }
  }
}

// Optimizers with other state than AdamW's: more moments, an initial value, means of rows and columns.
TEST_CASE("runs of other optimizers agree at every stage, and resume bit for bit", "[runtime][engine][trainer]") {
  const json none = nullptr;  // removes AdamW's
  const auto [type, params, can_offload] = GENERATE_COPY(table<std::string, json, bool>({
      {"RMSprop", {{"lr", 0.01}, {"betas", none}, {"eps", 0.01}, {"momentum", 0.5}, {"centered", true}}, true},
      {"Rprop", {{"lr", 0.01}, {"betas", none}, {"eps", none}, {"weight_decay", none}}, true},
      {"AdamW8bit", {{"min_8bit_size", 10}}, false},
      {"Adafactor", {{"lr", 0.05}, {"betas", none}, {"eps", none}, {"weight_decay", 0.1}}, false},
  }));
  const JobFiles files(test::make_mixed_net());
  const json optimizer{{"optimizer", {{"type", type}, {"params", params}}},
                       {"checkpoint", {{"interval", 3}, {"keep_last", 5}}}};
  const auto plain = run_of(files, "plain", 1, 6, stage(0)).with_changes(optimizer);
  test::run_job(plain);
  const auto expected = test::states_of(checkpoint_of(plain, 6));
  int number = 0;
  for (const auto& [layout, ranks] : std::vector<std::pair<json, int>>{
           {stage(0), 2}, {stage(1), 3}, {stage(2), 2}, {stage(3), 3}, {offloaded_stage(2), 2}}) {
    if (layout == offloaded_stage(2) && !can_offload) continue;
    INFO(type << ", " << ranks << " ranks, " << layout);
    const auto run = [&](const char* name, int on_ranks, const json& of_layout) {
      return run_of(files, fmt::format("{}{}", name, number).c_str(), on_ranks, 6, of_layout).with_changes(optimizer);
    };
    const auto whole = run("whole", ranks, layout);
    test::run_job(whole);
    const auto second = run("second", ranks, layout);
    test::run_job(resumed(second, checkpoint_of(whole, 3)));
    const auto states = test::states_of(checkpoint_of(whole, 6));
    CHECK(test::first_difference(states, test::states_of(checkpoint_of(second, 6))) == "");
    REQUIRE(states.size() == expected.size());
    for (const auto& [key, values] : expected) {
      INFO(key.second << " of " << key.first);
      CHECK(is_close(states.at(key), values));
    }
    const auto elsewhere = run("elsewhere", 1, stage(0));
    test::run_job(resumed(elsewhere, checkpoint_of(whole, 3)));
    for (const auto& [key, values] : test::states_of(checkpoint_of(elsewhere, 6))) {
      INFO(key.second << " of " << key.first << ", resumed on one rank");
      CHECK(is_close(expected.at(key), values));
    }
    ++number;
  }
}

TEST_CASE("a checkpoint loads at any stage on any number of ranks", "[runtime][engine][trainer]") {
  const auto [from_stage, from_ranks] = GENERATE(table<int, int>({{0, 1}, {1, 3}, {2, 1}, {3, 3}}));
  const JobFiles files(test::make_mixed_net());
  const auto saved = run_of(files, "saved", from_ranks, 3, stage(from_stage));
  test::run_job(saved);
  const auto states = test::states_of(checkpoint_of(saved, 3));
  const PlainRun plain(files, 5);
  for (const int zero : {0, 2, 3}) {
    const int ranks = zero == 0 ? 1 : zero;
    INFO("from stage " << from_stage << " of " << from_ranks << " to stage " << zero << " of " << ranks);
    // Weights alone, saved again after no step of their own: what was loaded, bit for bit.
    const auto same = run_of(files, fmt::format("same{}", zero).c_str(), ranks, 3, stage(zero));
    std::vector<std::vector<engine::step::OwnedState>> owned(static_cast<size_t>(ranks));
    test::MemoryStore store;
    test::run_mesh({.data = ranks}, [&](const comm::Groups& groups) {
      test::JobRank rank(files.model, same.config, groups);
      rank.resume(saved.run_dir + "/checkpoints", groups, store);
      owned[static_cast<size_t>(groups.world.rank())] = rank.owned_state();
    });
    for (const auto& [key, values] : test::join(owned)) {
      INFO(key.second << " of " << key.first);
      CHECK(values.equal(states.at(key)));
    }
    const auto next = run_of(files, fmt::format("next{}", zero).c_str(), ranks, 5, stage(zero));
    test::run_job(resumed(next, saved.run_dir + "/checkpoints"));
    const auto metrics = test::metrics_of(next.run_dir);
    REQUIRE(metrics.size() == 2);
    for (size_t i = 0; i < 2; ++i)
      CHECK(metrics[i].at("loss").get<double>() == Approx(plain.losses[i + 3]).epsilon(1e-5));
  }
}

TEST_CASE("a run starts from the weights alone, or with new moments", "[runtime][engine][trainer]") {
  const JobFiles files(test::make_mixed_net());
  const auto saved = run_of(files, "saved", 2, 3);
  test::run_job(saved);
  const auto states = test::states_of(checkpoint_of(saved, 3));

  const auto weights =
      run_of(files, "weights", 1, 1).with_changes({{"checkpoint", {{"load", {{"weights_only", true}}}}}});
  test::run_job(resumed(weights, checkpoint_of(saved, 3)));
  const auto fresh =
      run_of(files, "fresh", 1, 4).with_changes({{"checkpoint", {{"load", {{"optimizer_states", false}}}}}});
  test::run_job(resumed(fresh, checkpoint_of(saved, 3)));

  // AdamW's first step with new moments, on the saved weights.
  const auto expect = [&](const JobRun& run, int64_t step, int64_t batch) {
    auto parameters = test::plain_parameters(test::make_mixed_net());
    const at::NoGradGuard no_grad;
    for (auto& [name, value] : parameters) {
      if (value.requires_grad()) value.copy_(states.at({name, "master"}).view(value.sizes()));
    }
    const auto leaves = test::trainable(parameters);
    torch::optim::AdamW adam(leaves, torch::optim::AdamWOptions(0.05).betas({0.8, 0.95}).eps(0.01).weight_decay(0.1));
    {
      const at::AutoGradMode grad(true);
      const auto loss = [&](const at::Tensor& x, const at::Tensor& y) {
        return at::mse_loss(test::plain_mixed_net(parameters, x), y);
      };
      test::plain_step(adam, leaves, loss, files.micro_batches(batch, 12), 0);
    }
    const auto got = test::states_of(checkpoint_of(run, step));
    for (const auto& [name, value] : parameters) {
      INFO(name);
      if (value.requires_grad()) CHECK(is_close(got.at({name, "master"}), value));
    }
  };
  expect(weights, 1, 0);  // from the start of the data
  expect(fresh, 4, 3);
}

TEST_CASE("a model with other parameters loads what both have", "[runtime][engine][trainer]") {
  const auto net = [](bool has_extra, int64_t classes) {
    test::ScriptModule out{"Net",
                           has_extra ? "def forward(self, x):\n    return torch.matmul(x * self.extra, self.head)\n"
                                     : "def forward(self, x):\n    return torch.matmul(x, self.head)\n",
                           {{"head", test::random_weight({5, classes}, 3)}}};
    if (has_extra) out.parameters.emplace_back("extra", test::random_weight({5}, 4));
    return test::compile(out);
  };
  const JobFiles files(net(false, 3));
  const auto saved = run_of(files, "saved", 1, 2);
  test::run_job(saved);
  net(true, 3).save(files.folder / "extra.pt");
  auto more = run_of(files, "more", 2, 1);
  more.model = files.folder / "extra.pt";
  expect_error(ExitCode::kBadInput, {"extra", "strict"},
               [&] { test::run_job(resumed(more, checkpoint_of(saved, 2))); });
  more = more.with_changes({{"checkpoint", {{"load", {{"strict", false}}}}}, {"train", {{"steps", 2}}}});
  CHECK(test::run_job(resumed(more, checkpoint_of(saved, 2))) == TrainOutcome::kFinished);  // nothing to do
  more = more.with_changes({{"train", {{"steps", 3}}}, {"optimizer", {{"params", {{"lr", 0.0}}}}}});
  test::run_job(resumed(more, checkpoint_of(saved, 2)));
  const auto states = test::states_of(checkpoint_of(more, 3));
  CHECK(states.at({"head", "master"}).equal(test::states_of(checkpoint_of(saved, 2)).at({"head", "master"})));
  CHECK(states.at({"extra", "master"}).equal(test::random_weight({5}, 4).detach()));

  net(false, 4).save(files.folder / "wide.pt");
  auto wide = more;
  wide.model = files.folder / "wide.pt";
  expect_error(ExitCode::kBadInput, {"head", "(5, 4)"}, [&] { test::run_job(resumed(wide, checkpoint_of(saved, 2))); });
}

TEST_CASE("a parameter that is unfrozen when a run resumes counts its own steps, as in LibTorch",
          "[runtime][engine][trainer]") {
  const JobFiles files(test::make_mixed_net());
  const json rates{{"optimizer", {{"params", {{"eps", 1e-8}, {"lr", 0.01}}}}}};
  auto thawed_net = test::make_mixed_net();
  thawed_net.attr("frozen").toTensor().set_requires_grad(true);
  thawed_net.save(files.folder / "thawed.pt");

  auto parameters = test::plain_parameters(test::make_mixed_net());
  const auto loss = [&](const at::Tensor& x, const at::Tensor& y) {
    return at::mse_loss(test::plain_mixed_net(parameters, x), y);
  };
  torch::optim::AdamW adam(test::trainable(parameters),
                           torch::optim::AdamWOptions(0.01).betas({0.8, 0.95}).eps(1e-8).weight_decay(0.1));
  for (int64_t step = 0; step < 8; ++step) {
    if (step == 4) {
      parameters.at("frozen").set_requires_grad(true);
      adam.add_param_group(torch::optim::OptimizerParamGroup({parameters.at("frozen")}));
    }
    test::plain_step(adam, test::trainable(parameters), loss, files.micro_batches(step % 5, 12), 0);
  }

  const auto saved = run_of(files, "saved", 2, 4, test::with(stage(1), rates));
  test::run_job(saved);
  int number = 0;
  for (const auto& layout : {stage(0), stage(3), offloaded_stage(2)}) {
    INFO(layout);
    auto thawed = run_of(files, fmt::format("thawed{}", number++).c_str(), 2, 6, test::with(layout, rates));
    thawed.model = files.folder / "thawed.pt";
    test::run_job(resumed(thawed, checkpoint_of(saved, 4)));
    auto rest = thawed.with_changes({{"train", {{"steps", 8}}}});  // the checkpoint in between keeps the count
    rest.ranks = 1;
    test::run_job(resumed(rest, "auto"));
    const auto states = test::states_of(checkpoint_of(rest, 8));
    for (const auto& [name, value] : parameters) {
      INFO(name);
      CHECK(is_close(states.at({name, "master"}), value));
    }
  }
}

TEST_CASE("a pipeline records its measured cut, with which a run repeats it bit by bit",
          "[runtime][engine][trainer][pipeline]") {
  std::vector<std::pair<std::string, torch::jit::Module>> blocks;
  for (const char* name : {"a", "b", "c", "d"}) blocks.emplace_back(name, test::make_block(10));
  const JobFiles files(
      test::compile({.type = "Net",
                     .source = "def forward(self, x):\n"
                               "    x = self.d.forward(self.c.forward(self.b.forward(self.a.forward(x))))\n"
                               "    return torch.matmul(x, self.head)\n",
                     .parameters = {{"head", test::random_weight({5, 3}, 3)}},
                     .children = blocks}));
  const json stages{{"units", {"Block"}}, {"gradient_clipping", 0.1}, {"pipeline", {{"stages", 2}}}};
  const auto measured = run_of(files, "measured", 2, 4, stages);
  test::run_job(measured);
  const auto recorded = json::parse(CheckpointReader(checkpoint_of(measured, 4)).metadata().config);
  const std::string cut = recorded.at("pipeline").at("partition");
  CHECK_THAT(cut, StartsWith("layers:"));
  const auto again = run_of(files, "again", 2, 4, test::with(stages, {{"pipeline", {{"partition", cut}}}}));
  test::run_job(again);
  const auto first = test::states_of(checkpoint_of(measured, 4));
  for (const auto& [key, values] : test::states_of(checkpoint_of(again, 4))) {
    INFO(key.second << " of " << key.first);
    CHECK(values.equal(first.at(key)));
  }
}

TEST_CASE("a run that is asked to stop saves, and resumes by itself", "[runtime][engine][trainer]") {
  const int zero = GENERATE(0, 3);
  const JobFiles files(test::make_mixed_net());
  const auto whole = run_of(files, "whole", 2, 5, stage(zero)), halted = run_of(files, "halted", 2, 5, stage(zero));
  test::run_job(whole);
  JobRun stopping = halted;
  stopping.prepare = [](test::TrainRequest& request) {
    if (request.placement.rank != 1) return;
    request.stop_requested = [asked = std::make_shared<int>(0)] { return ++*asked == 3; };  // of one rank, once
  };
  CHECK(test::run_job(stopping) == TrainOutcome::kStopped);
  CHECK(test::metrics_of(halted.run_dir).size() == 3);
  CHECK(test::run_job(resumed(halted, "auto")) == TrainOutcome::kFinished);
  CHECK(test::first_difference(test::states_of(checkpoint_of(whole, 5)), test::states_of(checkpoint_of(halted, 5))) ==
        "");
  CHECK(test::metrics_of(halted.run_dir).size() == 5);
  CHECK(test::run_job(resumed(halted, "auto")) == TrainOutcome::kFinished);  // nothing is left
  CHECK(test::metrics_of(halted.run_dir).size() == 5);
}

TEST_CASE("without checkpoint.on_interrupt a stop saves nothing, and auto starts again", "[runtime][engine][trainer]") {
  const JobFiles files(test::make_mixed_net());
  auto run = run_of(files, "run", 2, 3).with_changes({{"checkpoint", {{"on_interrupt", false}, {"async", false}}}});
  run.prepare = [](test::TrainRequest& request) { request.stop_requested = [] { return true; }; };
  CHECK(test::run_job(run) == TrainOutcome::kStopped);
  CHECK_FALSE(fs::exists(checkpoint_of(run, 1)));
  run.prepare = [](test::TrainRequest& request) {
    request.resume = "auto";
    request.begin_from = "";
    request.job = "7";
  };
  CHECK(test::run_job(run) == TrainOutcome::kFinished);
  CHECK(test::metrics_of(run.run_dir).size() == 3);
  CHECK(fs::exists(checkpoint_of(run, 3)));
}

TEST_CASE("evaluations stand in the lines of their steps", "[runtime][engine][trainer]") {
  const JobFiles files(test::make_mixed_net());
  const at::Tensor x = test::random_values({7, 5}, 200), y = test::random_values({7, 3}, 201);
  test::write_samples(files.folder / "eval.safetensors", {{"x", x}, {"y", y}});
  const auto run =
      run_of(files, "run", 2, 5)
          .with_changes({{"train", {{"eval_interval", 2}}}, {"data", {{"eval", files.folder / "eval.safetensors"}}}});
  test::run_job(run);
  const auto loss_after = [&](int64_t steps) {
    return at::mse_loss(test::plain_mixed_net(PlainRun(files, steps).parameters, x), y).item<double>();
  };
  const auto metrics = test::metrics_of(run.run_dir);
  REQUIRE(metrics.size() == 5);
  for (const int64_t step : {1, 2, 3, 4, 5}) {
    const auto& line = metrics[static_cast<size_t>(step - 1)];
    const bool is_evaluated = step % 2 == 0 || step == 5;
    REQUIRE(line.contains("eval_loss") == is_evaluated);
    if (is_evaluated) CHECK(line.at("eval_loss").get<double>() == Approx(loss_after(step)).epsilon(1e-5));
  }

  SECTION("a run that only evaluates adds a line") {
    auto only = run;
    only.prepare = [](test::TrainRequest& request) {
      request.eval_only = true;
      request.resume = "auto";
    };
    const test::CapturedOutput out(1);  // it says its result even when quiet
    test::run_job(only);
    CHECK_THAT(out.text(), Contains("step 5  eval_loss") && Contains("over 7 samples"));
    const auto again = test::metrics_of(run.run_dir);
    REQUIRE(again.size() == 6);
    CHECK(again[5].at("eval_loss").get<double>() == Approx(metrics[4].at("eval_loss").get<double>()).epsilon(1e-6));
    CHECK(again[5].at("eval_samples") == 7);
  }
  SECTION("without a checkpoint auto has nothing to evaluate") {
    auto only = run;
    only.run_dir = files.folder / "other";
    only.prepare = [](test::TrainRequest& request) {
      request.eval_only = true;
      request.resume = "auto";
    };
    expect_error(ExitCode::kNoInput, {"no complete checkpoint"}, [&] { test::run_job(only); });
  }
  SECTION("an evaluation at the end that is missing is made up for") {
    const auto unevaluated = run_of(files, "unevaluated", 2, 4);
    test::run_job(unevaluated);
    auto more = unevaluated.with_changes({{"data", {{"eval", files.folder / "eval.safetensors"}}}});
    CHECK(test::run_job(resumed(more, "auto")) == TrainOutcome::kFinished);
    const auto lines = test::metrics_of(unevaluated.run_dir);
    REQUIRE(lines.size() == 5);
    CHECK(lines[4].at("step") == 4);
    CHECK(lines[4].at("eval_loss").get<double>() == Approx(metrics[3].at("eval_loss").get<double>()).epsilon(1e-6));
  }
  SECTION("so is one midway") {
    const auto half = run_of(files, "half", 2, 2);
    test::run_job(half);
    auto more = half.with_changes(
        {{"train", {{"steps", 3}, {"eval_interval", 2}}}, {"data", {{"eval", files.folder / "eval.safetensors"}}}});
    test::run_job(resumed(more, "auto"));
    const auto lines = test::metrics_of(half.run_dir);
    REQUIRE(lines.size() == 4);
    CHECK(lines[2].at("eval_loss").get<double>() == Approx(metrics[1].at("eval_loss").get<double>()).epsilon(1e-6));
  }
}

TEST_CASE("a stop during the last evaluation leaves it for the next start", "[runtime][engine][trainer]") {
  const JobFiles files(test::make_mixed_net());
  const at::Tensor x = test::random_values({12 * 40, 5}, 200), y = test::random_values({12 * 40, 3}, 201);
  test::write_samples(files.folder / "eval.safetensors", {{"x", x}, {"y", y}});
  auto run = run_of(files, "run", 2, 2).with_changes({{"data", {{"eval", files.folder / "eval.safetensors"}}}});
  run.prepare = [](test::TrainRequest& request) {
    // The third question comes after 32 batches of the evaluation.
    request.stop_requested = [asked = std::make_shared<int>(0)] { return ++*asked == 3; };
  };
  CHECK(test::run_job(run) == TrainOutcome::kStopped);
  REQUIRE(test::metrics_of(run.run_dir).size() == 2);
  CHECK_FALSE(test::metrics_of(run.run_dir)[1].contains("eval_loss"));
  CHECK(test::run_job(resumed(run, "auto")) == TrainOutcome::kFinished);
  const auto metrics = test::metrics_of(run.run_dir);
  REQUIRE(metrics.size() == 3);
  const PlainRun plain(files, 2);
  CHECK(metrics[2].at("eval_loss").get<double>() ==
        Approx(at::mse_loss(test::plain_mixed_net(plain.parameters, x), y).item<double>()).epsilon(1e-5));
}

TEST_CASE("nodes that keep their own parts of a checkpoint resume from them", "[runtime][engine][trainer]") {
  const int zero = GENERATE(1, 3);
  const JobFiles files(test::make_mixed_net());
  const auto whole = run_of(files, "whole", 2, 4, stage(zero));
  test::run_job(whole);
  auto run = run_of(files, "run", 2, 2, stage(zero)).with_changes({{"checkpoint", {{"use_node_local_storage", true}}}});
  std::string resume;
  run.prepare = [&](test::TrainRequest& request) {  // each rank is a node with a disk of its own
    const int node = request.placement.rank;
    request.placement = {node, 2, 0, node, 2, fmt::format("node{}", node)};
    request.run_dir = files.folder / fmt::format("node{}", node);
    request.resume = resume;
  };
  test::run_job(run);
  for (const char* node : {"node0", "node1"}) {
    CHECK(fs::exists(files.folder / node + "/checkpoints/step_00000002/manifest.json"));
    CHECK(fs::exists(files.folder / node + "/checkpoints/step_00000002/model.pt"));
  }
  resume = "auto";
  test::run_job(run.with_changes({{"train", {{"steps", 4}}}}));
  const auto metrics = test::metrics_of(files.folder / "node0"), expected = test::metrics_of(whole.run_dir);
  REQUIRE(metrics.size() == 4);
  for (size_t i = 0; i < 4; ++i) CHECK(metrics[i].at("loss") == expected[i].at("loss"));

  resume = "";
  const json wants{{"zero_optimization", {{"stage3_gather_16bit_weights_on_model_save", true}}}};
  if (zero == 3) {
    expect_error(ExitCode::kBadInput, {"use_node_local_storage no host has all shards"},
                 [&] { test::run_job(run.with_changes(wants)); });
  }
}

TEST_CASE("nodes that share a directory save into it together", "[runtime][engine][trainer]") {
  const JobFiles files(test::make_mixed_net());
  const auto alone = run_of(files, "alone", 2, 2);
  test::run_job(alone);
  auto run = run_of(files, "run", 2, 2);
  run.prepare = [](test::TrainRequest& request) {
    const int node = request.placement.rank;
    request.placement = {node, 2, 0, node, 2, fmt::format("node{}", node)};
  };
  test::run_job(run);
  CHECK(test::first_difference(test::states_of(checkpoint_of(alone, 2)), test::states_of(checkpoint_of(run, 2))) == "");
}

TEST_CASE("a run may go beside its replica for its first steps", "[runtime][engine][trainer]") {
  const json zero = GENERATE(stage(1), stage(3), offloaded_stage(2));
  const JobFiles files(test::make_mixed_net());
  const auto plain = run_of(files, "plain", 2, 4, zero);
  test::run_job(plain);
  auto verified = run_of(files, "verified", 2, 4, zero);
  verified.prepare = [](test::TrainRequest& request) { request.verify = 2; };
  CHECK(test::run_job(verified) == TrainOutcome::kFinished);
  CHECK(test::first_difference(test::states_of(checkpoint_of(plain, 4)), test::states_of(checkpoint_of(verified, 4))) ==
        "");
  // also from a checkpoint
  auto later = run_of(files, "later", 2, 5, zero);
  later.prepare = [&](test::TrainRequest& request) {
    request.verify = 5;
    request.resume = checkpoint_of(plain, 4);
  };
  CHECK(test::run_job(later) == TrainOutcome::kFinished);
  CHECK(test::metrics_of(later.run_dir).size() == 1);
}

TEST_CASE("a loss that is not a number is traced to its sample", "[runtime][engine][diagnosis]") {
  const int zero = GENERATE(0, 1, 2, 3);
  JobFiles files(test::make_mixed_net());
  files.x[12 + 10][2] = std::nan("");  // step 2: of rank 1's second micro batch, samples 21 to 23
  test::write_samples(files.folder / "data.safetensors", {{"x", files.x}, {"y", files.y}});
  const auto run = run_of(files, "run", 2, 4, stage(zero)).with_changes({{"gradient_accumulation_steps", 2}});
  expect_error(ExitCode::kCannotContinue,
               {"the loss is not finite at step 2", "rank 1, micro batch 1 (samples 21, 22, 23)",
                "array 'x' of the data, sample 22", "data.safetensors", "element [2]", "is nan"},
               [&] { test::run_job(run); });
  CHECK(test::metrics_of(run.run_dir).size() == 2);
}

TEST_CASE("a gradient that is not finite is traced to its parameter", "[runtime][engine][diagnosis]") {
  const int zero = GENERATE(0, 1, 2, 3);
  // The square root of 0 has an infinite gradient.
  const JobFiles files(
      test::compile({"Root",
                     "def forward(self, x):\n    return torch.matmul(x, self.head) + torch.sqrt(self.zero)\n",
                     {{"head", test::random_weight({5, 3}, 1)},
                      {"zero", at::tensor({1.0, 0.0, 1.0}).to(at::kFloat).set_requires_grad(true)}}}));
  const auto run = run_of(files, "run", 2, 4, stage(zero));
  expect_error(ExitCode::kCannotContinue,
               {"the gradient is not finite at step 1", "the gradient of parameter 'zero' (the root unit)",
                "element [1]", "inf"},
               [&] { test::run_job(run); });
}

TEST_CASE(
    "a gradient that is not finite is traced to its parameter where later units were updated before it, and such a "
    "state is not saved",
    "[runtime][engine][diagnosis]") {
  const json zero = GENERATE(offloaded_stage(1), offloaded_stage(2), offloaded_stage(3));
  // A clipping that clips nothing: the updates begin after backward.
  const json changes = GENERATE(json::object(), json{{"gradient_clipping", 1e9}});
  const auto block = [](uint64_t seed, float least) {
    return test::compile(
        {"Block",
         "def forward(self, x):\n    return torch.matmul(x, self.weight) + torch.sqrt(self.root)\n",
         {{"weight", test::random_weight({5, 5}, seed)}, {"root", at::full({5}, least).set_requires_grad(true)}}});
  };
  const auto blocks = test::compile({.type = "Blocks",
                                     .source = "def forward(self, x):\n    return x\n",
                                     .children = {{"0", block(10, 0.0F)}, {"1", block(20, 1.0F)}}});
  const JobFiles files(test::compile({"Net",
                                      R"(
    def forward(self, x):
        x = getattr(self.blocks, "1").forward(getattr(self.blocks, "0").forward(x))
        return torch.matmul(x, self.head)
  )",
                                      {{"head", test::random_weight({5, 3}, 1)}},
                                      {},
                                      {{"blocks", blocks}}}));
  const auto run =
      run_of(files, "run", 2, 4, zero).with_changes(changes).with_changes({{"checkpoint", {{"interval", 1}}}});
  expect_error(ExitCode::kCannotContinue,
               {"the gradient is not finite at step 1", "the gradient of parameter 'blocks.0.root'", "inf"},
               [&] { test::run_job(run); });
  CHECK_FALSE(fs::exists(checkpoint_of(run, 1)));
}

TEST_CASE("gradients that only their sum of squares makes infinite are said to be finite",
          "[runtime][engine][diagnosis]") {
  const JobFiles files(
      test::compile({"Steep",
                     "def forward(self, x, y):\n    return (self.w * x.mean()).sum() * 1e25 + y.mean()\n",
                     {{"w", test::random_weight({3}, 1)}}}));
  const auto run = run_of(files, "run", 2, 2).with_changes({{"loss", nullptr}});
  expect_error(ExitCode::kCannotContinue, {"the gradient is not finite at step 1", "every gradient is finite"},
               [&] { test::run_job(run); });
}

TEST_CASE("a micro batch of which no label counts is named, with what to do about it", "[runtime][engine][diagnosis]") {
  const bool is_input = GENERATE(false, true);  // labels that the config calls inputs
  const JobFiles files(test::compile({"Classes",
                                      is_input ? "def forward(self, x, y):\n"
                                                 "    return torch.cross_entropy_loss(torch.linear(x, self.w), y)\n"
                                               : "def forward(self, x):\n    return torch.linear(x, self.w)\n",
                                      {{"w", test::random_weight({3, 5}, 1)}}}));
  at::Tensor labels = at::arange(60).remainder(3);
  labels.narrow(0, 6, 6).fill_(-100);
  test::write_samples(files.folder / "data.safetensors", {{"x", files.x}, {"y", labels}});
  const json inputs{{"loss", nullptr}, {"data", {{"inputs", {"x", "y"}}}}}, outside{{"loss", "cross_entropy"}};
  const auto run = run_of(files, "run", 2, 2).with_changes(is_input ? inputs : outside);
  expect_error(
      ExitCode::kCannotContinue,
      {"the loss is not finite at step 1",
       "rank 1, micro batch 0 (samples 6, 7, 8, 9, 10, 11): no label counts: array 'y' of the data has only -100",
       "0/0. Leave such samples out, or set \"loss_average\": \"tokens\""},
      [&] { test::run_job(run); });
  if (is_input) return;
  const auto by_tokens = run.with_changes({{"loss_average", "tokens"}});
  CHECK(test::run_job(by_tokens) == TrainOutcome::kFinished);
}

TEST_CASE("an overflow at the smallest loss scale ends the run", "[runtime][engine][diagnosis]") {
  const JobFiles files(test::make_mixed_net());
  const auto run =
      run_of(files, "run", 2, 4)
          .with_changes({{"fp16", {{"enabled", true}, {"initial_scale_power", 24}, {"min_loss_scale", 1 << 24}}}});
  expect_error(ExitCode::kCannotContinue, {"step 1"}, [&] { test::run_job(run); });
}

TEST_CASE("what a run reports on standard output", "[runtime][engine][trainer]") {
  const JobFiles files(test::make_mixed_net());
  auto run =
      run_of(files, "run", 2, 4)
          .with_changes(
              {{"steps_per_print", 2},
               {"wall_clock_breakdown", true},
               {"memory_breakdown", true},
               {"dump_state", true},
               {"graph_harvesting", true},
               {"activation_checkpointing", {{"enabled", true}, {"profile", true}}},
               {"comms_logger", {{"enabled", true}, {"verbose", true}}},
               {"flops_profiler",
                {{"enabled", true}, {"profile_step", 1}, {"output_file", files.folder / "flops.txt"}}},
               {"csv_monitor", {{"enabled", true}, {"output_path", files.folder.path()}, {"job_name", "csv"}}},
               {"tensorboard", {{"enabled", true}, {"output_path", files.folder.path()}, {"job_name", "board"}}}});
  RunTimings timings;
  run.prepare = [&](test::TrainRequest& request) {
    request.quiet = false;
    request.trace_step = 3;
    if (request.placement.rank == 0) request.timings = &timings;
  };
  std::string out;
  {
    const test::CapturedOutput captured(1);
    test::run_job(run);
    out = captured.text();
  }
  CHECK_THAT(out, StartsWith("model  ") && Contains("\nranks       2 ranks on cpu\n") &&
                      Contains("\nsteps       4 done in ") && Contains("\nloss        first "));
  CHECK_THAT(out, Contains("step 1/4") && Contains("step 2/4") && Contains("step 4/4") && !Contains("step 3/4"));
  CHECK_THAT(out, Contains("step=2, skipped=0, lr=[0.05], mom=[(0.8, 0.95)]") && !Contains("step=1,"));
  CHECK_THAT(out, Contains("time (ms) | fwd_microstep:") && Contains("flops profile of step 2 in"));
  CHECK_THAT(out, Contains("all_reduce") && Contains("finished, checkpoint in " + checkpoint_of(run, 4)));
  CHECK_THAT(test::read_file(files.folder / "flops.txt"), Contains("MixedNet"));
  for (const char* rank : {"0", "1"}) {
    const auto trace = json::parse(test::read_file(run.run_dir + "/trace.step_3.rank_" + rank + ".json"));
    CHECK_FALSE(trace.at("traceEvents").empty());
  }
  const auto metrics = test::metrics_of(run.run_dir);
  const std::string losses = test::read_file(files.folder / "csv/Train_Samples_train_loss.csv");
  CHECK(std::count(losses.begin(), losses.end(), '\n') == 5);  // a title and a line a step
  CHECK_FALSE(fs::is_empty(files.folder / "board"));
  CHECK_THAT(timings.table(), Contains("the first step") && Contains("opening the data"));
}

TEST_CASE("overflows and stops are said", "[runtime][engine][trainer]") {
  const JobFiles files(test::make_mixed_net());
  auto run = run_of(files, "run", 1, 4)
                 .with_changes({{"fp16", {{"enabled", true}, {"initial_scale_power", 24}, {"hysteresis", 1}}},
                                {"checkpoint", {{"on_interrupt", false}}}});
  run.prepare = [](test::TrainRequest& request) {
    request.quiet = false;
    request.trace_step = 9;
    request.stop_requested = [] { return true; };
  };
  const test::CapturedOutput captured(1);
  CHECK(test::run_job(run) == TrainOutcome::kStopped);
  CHECK_THAT(captured.text(), Contains("8388608") && Contains("stopped on request, no checkpoint saved"));
}

TEST_CASE("whole weights are saved beside the shards where they are wanted", "[runtime][engine][trainer]") {
  const JobFiles files(test::make_mixed_net());
  const json wants{{"zero_optimization", {{"stage3_gather_16bit_weights_on_model_save", true}}},
                   {"bf16", {{"enabled", true}}}};
  const auto run = run_of(files, "run", 2, 2, test::with(stage(3), wants));
  test::run_job(run);
  const SafetensorsFile weights(checkpoint_of(run, 2) + "/weights.safetensors");
  const auto states = test::states_of(checkpoint_of(run, 2));
  for (const char* name : {"head", "encode.weight", "blocks.1.bias"}) {
    INFO(name);
    REQUIRE(weights.find(name) != nullptr);
    const at::Tensor value = weights.tensor(*weights.find(name));
    CHECK(value.reshape({-1}).equal(states.at({name, "master"}).to(at::kBFloat16)));
  }
}

TEST_CASE("two jobs do not save into one directory", "[runtime][engine][trainer]") {
  const JobFiles files(test::make_mixed_net());
  const std::string shared = files.folder / "shared";
  fs::create_directories(shared);
  const auto held = DirectoryLock::try_lock(shared + "/.checkpoints.lock", "job 12 (process 1 on elsewhere)");
  REQUIRE(held.ok());
  auto run = run_of(files, "run", 1, 2).with_changes({{"checkpoint", {{"dir", shared}}}});
  expect_error(ExitCode::kCannotCreate, {"job 12 (process 1 on elsewhere)", shared}, [&] { test::run_job(run); });
  run.prepare = [](test::TrainRequest& request) { request.job = "12"; };  // an earlier attempt of this very job
  CHECK(test::run_job(run) == TrainOutcome::kFinished);
  CHECK(fs::exists(shared + "/step_00000002"));
}

TEST_CASE("a run that goes back to an earlier checkpoint of its own continues there", "[runtime][engine][trainer]") {
  const JobFiles files(test::make_mixed_net());
  const auto run = run_of(files, "run", 2, 6).with_changes({{"checkpoint", {{"interval", 2}, {"keep_last", 5}}}});
  test::run_job(run);
  auto back = resumed(run, checkpoint_of(run, 2));
  back.prepare = [&](test::TrainRequest& request) {
    request.resume = checkpoint_of(run, 2);
    request.stop_requested = [] { return true; };  // after one step
  };
  test::run_job(back.with_changes({{"checkpoint", {{"on_interrupt", false}}}}));
  CHECK(test::metrics_of(run.run_dir).size() == 3);
  CHECK(test::run_job(resumed(run, "auto")) == TrainOutcome::kFinished);  // from step 2 again, not from 6
  CHECK(test::metrics_of(run.run_dir).size() == 6);
}

TEST_CASE("a model without values starts from the same numbers on any ranks", "[runtime][engine][trainer]") {
  const JobFiles files(test::make_mixed_net());
  const std::string empty = files.folder / "empty.pt";
  model::torchscript::write_model_skeleton(files.model, empty);
  const auto first_of = [&](int zero, int ranks) {
    auto run = run_of(files, fmt::format("run{}{}", zero, ranks).c_str(), ranks, 1, stage(zero))
                   .with_changes({{"init", {{"seed", 3}, {"std", 0.5}}}, {"optimizer", {{"params", {{"lr", 0.0}}}}}});
    run.model = empty;
    test::run_job(run);
    return test::states_of(checkpoint_of(run, 1));
  };
  const auto states = first_of(0, 1), sharded = first_of(3, 3);
  for (const auto& [key, values] : states) {
    INFO(key.second << " of " << key.first);
    if (key.second == "master" || key.second == "frozen") CHECK(values.equal(sharded.at(key)));
  }
  CHECK(states.at({"encode.weight", "master"}).std().item<double>() == Approx(0.5).margin(0.25));
  CHECK(states.at({"blocks.0.bias", "master"}).abs().max().item<double>() == 0);
  auto run = run_of(files, "none", 1, 1);
  run.model = empty;
  expect_error(ExitCode::kBadInput, {"was exported empty", "\"init\""}, [&] { test::run_job(run); });
}
