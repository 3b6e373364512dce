// Whole runs with a curriculum or dynamic batches, on ranks that are threads: against LibTorch on samples that are cut
// by hand, resumed, at other numbers of ranks, with stages, beside the replica.
#include <ATen/ATen.h>

#include <catch2/catch.hpp>

#include "support/chain_net.hpp"
#include "support/checkout.hpp"
#include "support/job_run.hpp"

using namespace dslaunch;
using namespace dslaunch::runtime;
using test::JobRun;
using test::json;

namespace {

constexpr int64_t kNumSamples = 210, kLength = 16, kTrainBatch = 8,
                  kNumEvaluated = 12;  // the samples of tests/data/data_efficiency

json curriculum(const char* name, const json& section) {
  return {{name, test::with(section, {{"enabled", true}})}};
}

json lengths() {
  return curriculum("curriculum_learning",
                    {{"curriculum_type", "seqlen"},
                     {"min_difficulty", 2},
                     {"max_difficulty", 12},
                     {"schedule_type", "fixed_linear"},
                     {"schedule_config", {{"total_curriculum_step", 5}, {"difficulty_step", 4}}}});
}

std::string fixture(const std::string& name) {
  return test::source_file("tests/data/data_efficiency/" + name);
}

json sampling(const json& part) {
  return {{"data_efficiency", {{"enabled", true}, {"data_sampling", test::with(part, {{"enabled", true}})}}}};
}

json metrics() {
  const json rarity{{"index_to_sample_path", fixture("rarity/rarity_index_to_sample")},
                    {"index_to_metric_path", fixture("rarity/rarity_index_to_metric")},
                    {"min_difficulty", 100},
                    {"max_difficulty", 190},
                    {"schedule_type", "fixed_linear"},
                    {"schedule_config", {{"total_curriculum_step", 4}, {"difficulty_step", 1}}}};
  return sampling({{"curriculum_learning", {{"enabled", true}, {"curriculum_metrics", {{"rarity", rarity}}}}}});
}

json dynamic() {
  return sampling(
      {{"dynamic_batching",
        {{"enabled", true}, {"metrics_path", fixture("")}, {"max_tokens", 40}, {"sequence_picking_order", "random"}}}});
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
    test::write_samples(folder / "eval.safetensors",
                        {{"ids", ids.narrow(0, 0, kNumEvaluated)}, {"labels", labels.narrow(0, 0, kNumEvaluated)}});
  }

  JobRun run(const char* name, int ranks, const json& changes) const {
    const json base{{"train_batch_size", kTrainBatch},
                    {"train_micro_batch_size_per_gpu", 2},
                    {"optimizer", {{"type", "SGD"}, {"params", {{"lr", 0.5}}}}},
                    {"data", {{"train", folder / "data.safetensors"}, {"shuffle", false}, {"num_workers", 0}}},
                    {"loss", "cross_entropy"},
                    {"units", {"Block"}},
                    {"checkpoint", {{"interval", 3}, {"keep_last", 5}}},
                    {"train", {{"steps", 6}}}};
    return {model, folder / name, test::with(base, changes), ranks};
  }
};

// The losses of LibTorch's SGD on consecutive batches whose ids are cut to these lengths, and at last the loss over the
// evaluated samples, whole.
std::vector<double> plain_losses(const Files& files, const std::vector<int64_t>& cuts) {
  auto net = test::chain_net(false);
  const auto loss_of = [&](const at::Tensor& ids, const at::Tensor& labels) {
    return at::cross_entropy_loss(net.forward({ids}).toTensor(), labels);
  };
  std::vector<double> losses;
  for (size_t step = 0; step < cuts.size(); ++step) {
    const auto first = static_cast<int64_t>(step) * kTrainBatch;
    const at::Tensor loss = loss_of(files.ids.narrow(0, first, kTrainBatch).narrow(1, 0, cuts[step]),
                                    files.labels.narrow(0, first, kTrainBatch));
    for (const auto& parameter : net.parameters()) parameter.mutable_grad() = at::Tensor();
    loss.backward();
    losses.push_back(loss.item<double>());
    const at::NoGradGuard no_grad;
    for (auto parameter : net.parameters()) parameter.sub_(parameter.grad(), 0.5);
  }
  const at::NoGradGuard no_grad;
  losses.push_back(
      loss_of(files.ids.narrow(0, 0, kNumEvaluated), files.labels.narrow(0, 0, kNumEvaluated)).item<double>());
  return losses;
}

}  // namespace

TEST_CASE("a curriculum of lengths trains on samples that are cut, and evaluates whole ones",
          "[runtime][engine][data_schedule]") {
  const auto [ranks, stages] = GENERATE(table<int, int>({{1, 1}, {2, 1}, {2, 2}}));
  INFO(ranks << " ranks, " << stages << " stages");
  const Files files;
  const json more{{"data", {{"eval", files.folder / "eval.safetensors"}}},
                  {"pipeline", {{"stages", stages}, {"partition", "parameters"}}}};
  const auto found = metrics_after(files.run("run", ranks, test::with(lengths(), more)));
  const std::vector<int64_t> cuts{4, 4, 8, 8, 12, 12};
  const auto expected = plain_losses(files, cuts);
  REQUIRE(found.size() == cuts.size());
  for (size_t i = 0; i < cuts.size(); ++i) {
    CHECK(found[i].at("curriculum_seqlen") == cuts[i]);
    CHECK(found[i].at("loss").get<double>() == Approx(expected[i]).epsilon(1e-5));
  }
  CHECK(found.back().at("eval_loss").get<double>() == Approx(expected.back()).epsilon(1e-5));
}

TEST_CASE("runs with a curriculum or dynamic batches resume bit for bit, and deal the same at any number of ranks",
          "[runtime][engine][data_schedule]") {
  const json changes = GENERATE(test::with(lengths(), metrics()), dynamic());
  INFO(changes);
  const Files files;
  const auto whole = files.run("whole", 2, changes);
  const auto expected = metrics_after(whole);
  const auto second = files.run("second", 2, changes);
  const auto found = metrics_after(resumed(second, checkpoint_of(whole, 3)));
  CHECK(test::first_difference(test::states_of(checkpoint_of(whole, 6)), test::states_of(checkpoint_of(second, 6))) ==
        "");
  const auto alone = metrics_after(resumed(files.run("alone", 4, changes), checkpoint_of(whole, 3)));
  REQUIRE((expected.size() == 6 && found.size() == 3 && alone.size() == 3));
  const bool is_dynamic = expected[0].contains("batch_size");
  for (size_t i = 0; i < 3; ++i) {
    for (const char* key : {"loss", "lr", "grad_norm"}) {
      CHECK(found[i].at(key) == expected[i + 3].at(key));
      // Micro batches of dynamic groups differ from rank to rank, and each has the same weight.
      if (!is_dynamic)
        CHECK(alone[i].at(key).get<double>() == Approx(expected[i + 3].at(key).get<double>()).epsilon(1e-5));
    }
    CHECK(alone[i].at("lr") == expected[i + 3].at("lr"));
  }
  if (!is_dynamic) CHECK(expected[0].at("difficulty_rarity") == 122);
}

TEST_CASE("the learning rate of a step follows its number of samples", "[runtime][engine][data_schedule]") {
  const Files files;
  for (const auto& step : metrics_after(files.run("run", 1, dynamic()))) {
    const auto num_samples = step.at("batch_size").get<double>();
    CHECK(num_samples > kTrainBatch);
    CHECK(step.at("lr").get<double>() == Approx(0.5 * num_samples / kTrainBatch).epsilon(1e-12));
  }
  // One pass over the data: 13 samples in the mean are not a step, groups are.
  const auto epoch = metrics_after(files.run("epoch", 1, test::with(dynamic(), {{"train", {{"steps", nullptr}}}})));
  CHECK(epoch.size() == 6);
}

TEST_CASE("runs with a curriculum or dynamic batches agree with their replica", "[runtime][engine][data_schedule]") {
  const json changes = GENERATE(test::with(lengths(), metrics()), dynamic());
  const Files files;
  auto run = files.run("run", 2, changes);
  run.prepare = [](test::TrainRequest& request) { request.verify = 6; };
  CHECK(test::run_job(run) == test::TrainOutcome::kFinished);
}
