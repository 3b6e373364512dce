// Random layer-wise token dropping: which positions a unit gets, against LibTorch with the same positions masked; runs
// that resume; what it does not work with.
#include <ATen/ATen.h>

#include <catch2/catch.hpp>

#include "support/chain_net.hpp"
#include "support/expect_error.hpp"
#include "support/job_run.hpp"

using namespace dslaunch;
using namespace dslaunch::runtime;
using test::expect_error;
using test::JobRun;
using test::json;

namespace {

constexpr int64_t kNumSamples = 24, kLength = 10, kTrainBatch = 4;

json dropping(const json& changes = json::object()) {
  const json ltd{{"enabled", true},
                 {"total_layer_num", 4},
                 {"random_ltd_layer_num", 2},
                 {"random_ltd_layer_id", {1, 2}},
                 {"model_type", "decoder"},
                 {"hidden_state_order", "batch_seq_dim"},
                 {"random_ltd_schedule",
                  {{"min_value", 4},
                   {"max_value", 10},
                   {"schedule_type", "fixed_linear"},
                   {"schedule_config", {{"require_steps", 4}, {"seq_per_step", 2}}}}}};
  return {{"data_efficiency",
           {{"enabled", true}, {"data_routing", {{"enabled", true}, {"random_ltd", test::with(ltd, changes)}}}}}};
}

struct Files {
  test::MemoryDir folder;
  std::string model = folder / "net.pt";
  at::Tensor ids, labels;

  Files() {
    log::set_level(log::Level::kError);
    at::set_num_threads(1);  // ranks are threads already
    test::chain_net(false).save(model);
    torch::manual_seed(11);
    ids = at::randint(0, test::kChainClasses, {kNumSamples, kLength}, at::kLong);
    labels = at::randint(0, test::kChainClasses, {kNumSamples}, at::kLong);
    test::write_samples(folder / "data.safetensors", {{"ids", ids}, {"labels", labels}});
  }

  json config(const json& changes) const {
    return test::with({{"train_batch_size", kTrainBatch},
                       {"optimizer", {{"type", "SGD"}, {"params", {{"lr", 0.5}}}}},
                       {"data", {{"train", folder / "data.safetensors"}, {"shuffle", false}, {"num_workers", 0}}},
                       {"loss", "cross_entropy"},
                       {"units", {"Block"}},
                       {"checkpoint", {{"interval", 2}, {"keep_last", 5}}},
                       {"train", {{"steps", 6}}}},
                      changes);
  }
  JobRun run(const char* name, int ranks, const json& changes) const {
    return {model, folder / name, config(changes), ranks};
  }
};

// Inputs and outputs of units as the model passes them on: with all positions.
struct Recorder : model::UnitObserver {
  std::vector<at::Tensor> inputs, outputs;
  void on_enter(int unit, const std::vector<at::Tensor>& values) override {
    if (unit > 0) inputs.push_back(values.at(0).detach().clone());
  }
  void on_exit(int unit, const std::vector<at::Tensor>& values) override {
    if (unit > 0) outputs.push_back(values.at(0).detach().clone());
  }
};

// The net on these samples with, for each block, the positions that it gets.
at::Tensor masked_loss(const torch::jit::Module& net, const Files& files, const std::vector<at::Tensor>& masks) {
  at::Tensor x = at::embedding(net.attr("table").toTensor(), files.ids.narrow(0, 0, kTrainBatch));
  const char* names[] = {"a", "b", "c", "d"};
  for (size_t i = 0; i < masks.size(); ++i) {
    const auto block = net.attr(names[i]).toModule();
    const at::Tensor out = at::tanh(at::matmul(x, block.attr("weight").toTensor()) + block.attr("bias").toTensor());
    x = x + out * masks[i].unsqueeze(-1);
  }
  return at::cross_entropy_loss(at::matmul(x.mean(1), net.attr("head").toTensor().t()),
                                files.labels.narrow(0, 0, kTrainBatch));
}

}  // namespace

TEST_CASE("units get a random part of the positions, and the others pass them by",
          "[runtime][engine][token_dropping]") {
  const bool recomputes = GENERATE(false, true);
  const Files files;
  test::run_mesh(comm::make_mesh(1, 1, 1), [&](const comm::Groups& groups) {
    const json recomputation{{"activation_checkpointing", {{"enabled", recomputes}}}};
    test::JobRank rank(files.model, files.config(recomputation), groups);
    rank.model->runnable->set_token_dropping({.layers = {1, 2}, .num_layers = 4, .seed = 3});
    rank.model->runnable->keep_positions(1, 4);
    Recorder recorder;
    rank.model->runnable->set_unit_observer(&recorder);
    const double loss = rank.step().loss;
    REQUIRE(recorder.outputs.size() >= 4);  // a recomputation may call them again

    std::vector<at::Tensor> masks;
    for (size_t i = 0; i < 4; ++i) masks.push_back((recorder.outputs[i] != recorder.inputs[i]).any(-1));
    CHECK((masks[0].all().item<bool>() && masks[3].all().item<bool>()));
    for (size_t i : {1, 2}) CHECK(masks[i].sum(1).eq(4).all().item<bool>());
    CHECK_FALSE(masks[1].equal(masks[2]));
    CHECK_FALSE((masks[1] == masks[1].narrow(0, 0, 1)).all().item<bool>());  // samples differ

    const auto net = test::chain_net(false);
    const at::Tensor expected = masked_loss(net, files, masks);
    CHECK(loss == Approx(expected.item<double>()).epsilon(1e-6));
    expected.backward();
    for (const auto& [name, value] : rank.read_parameters()) {
      INFO(name);
      at::Tensor parameter;
      for (const auto& each : net.named_parameters()) {
        if (each.name == name) parameter = each.value;
      }
      const at::NoGradGuard no_grad;
      CHECK(at::allclose(value, parameter - 0.5 * parameter.grad(), 1e-5, 1e-6));
    }
    rank.model->runnable->train(false);  // all positions
    recorder.inputs.clear(), recorder.outputs.clear();
    const at::NoGradGuard no_grad;
    rank.model->runnable->forward({files.ids});
    for (size_t i = 0; i < 4; ++i) CHECK((recorder.outputs[i] != recorder.inputs[i]).any(-1).all().item<bool>());
    rank.model->runnable->set_unit_observer(nullptr);
  });
}

TEST_CASE("a run with dropped tokens resumes bit for bit", "[runtime][engine][token_dropping]") {
  const Files files;
  const auto whole = files.run("whole", 2, dropping());
  const auto expected = metrics_after(whole);
  auto second = files.run("second", 2, dropping());
  second.prepare = [&](test::TrainRequest& request) { request.resume = checkpoint_of(whole, 2); };
  const auto found = metrics_after(second);
  REQUIRE((expected.size() == 6 && found.size() == 4));
  CHECK(test::first_difference(test::states_of(checkpoint_of(whole, 6)), test::states_of(checkpoint_of(second, 6))) ==
        "");
  const int64_t kept[] = {4, 4, 6, 8, 10, 10};  // DeepSpeed counts the steps done before
  for (size_t i = 0; i < 6; ++i) CHECK(expected[i].at("random_ltd_kept") == kept[i]);
  const auto plain = metrics_after(files.run("plain", 2, json::object()));
  CHECK(plain[0].at("loss") != expected[0].at("loss"));
}

TEST_CASE("what random_ltd does not work with is refused", "[runtime][engine][token_dropping]") {
  const Files files;
  const auto refuses = [&](const json& changes, const std::vector<std::string>& words) {
    expect_error(ExitCode::kBadInput, words, [&] { test::run_job(files.run("refused", 1, changes)); });
  };
  refuses(dropping({{"total_layer_num", 5}}), {"it has 4 blocks", "total_layer_num is 5"});
  refuses(dropping({{"model_mask_name", "mask"}}), {"block 'b' has no argument 'mask'"});
  refuses(dropping({{"random_ltd_layer_id", {1}}}), {"has 1 layers, and random_ltd_layer_num is 2"});
  refuses(dropping({{"random_ltd_layer_id", {1, 4}}}), {"has layer 4, and total_layer_num is 4"});
  refuses(dropping({{"random_ltd_schedule", {{"schedule_config", {{"seq_per_step", 8}}}}}}), {"keeps no position"});
  refuses(test::with(dropping(), {{"tensor_parallel", {{"sequence_parallel", true}}}}), {"sequence_parallel"});
  auto verified = files.run("verified", 1, dropping());
  verified.prepare = [](test::TrainRequest& request) { request.verify = 1; };
  expect_error(ExitCode::kBadInput, {"--verify does not work with random_ltd"}, [&] { test::run_job(verified); });
}
