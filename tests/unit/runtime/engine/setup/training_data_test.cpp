// Which arrays of the data feed which argument, which bounds they get from the model, and how long a run is.
#include "runtime/engine/setup/training_data.hpp"

#include <ATen/ATen.h>

#include <catch2/catch.hpp>

#include "runtime/engine/setup/load_model.hpp"
#include "runtime/engine/setup/sequence_dims.hpp"
#include "support/captured_output.hpp"
#include "support/expect_error.hpp"
#include "support/job_files.hpp"
#include "support/job_rank.hpp"
#include "support/mesh_threads.hpp"

using namespace dslaunch;
using namespace dslaunch::runtime;
using namespace dslaunch::runtime::engine::setup;
using test::expect_error;
using test::json;

namespace {

// Words of 7, classes 9.
torch::jit::Module make_words() {
  return test::compile(
      {"Words",
       "def forward(self, ids):\n    return torch.linear(torch.embedding(self.table, ids), self.head)\n",
       {{"table", test::random_weight({7, 5}, 1)}, {"head", test::random_weight({9, 5}, 2)}}});
}

// Pictures of [2, 4, 3], classes 9.
torch::jit::Module make_pixels() {
  return test::compile({"Pixels",
                        "def forward(self, x):\n    return torch.linear(x.flatten(1), self.head)\n",
                        {{"head", test::random_weight({9, 24}, 2)}}});
}

struct Opened {
  test::TempDir folder;
  config::JobConfig config;
  std::unique_ptr<model::Model> model;
  TrainingData data;

  Opened(const test::NamedTensors& arrays, const json& changes, int rank = 0, int ranks = 1,
         const test::NamedTensors& eval = {}, const torch::jit::Module& module = make_words()) {
    log::set_level(log::Level::kError);
    module.save(folder / "words.pt");
    test::write_samples(folder / "data.safetensors", arrays);
    json text{{"train_batch_size", 4},
              {"optimizer", {{"type", "SGD"}, {"params", {{"lr", 0.1}}}}},
              {"data", {{"train", folder / "data.safetensors"}, {"shuffle", false}, {"num_workers", 0}}},
              {"loss", "cross_entropy"}};
    if (!eval.empty()) {
      test::write_samples(folder / "eval.safetensors", eval);
      text["data"]["eval"] = folder / "eval.safetensors";
    }
    config = test::load_config(test::with(text, changes), ranks).config;
    model = load_model(folder / "words.pt", config, device::Device(at::kCPU));
    data = open_training_data(model->facts, config, {.data = ranks}, rank, at::kFloat, /*pin=*/false);
  }
  Batch first_batch() const {
    return BatchLoader(data.train, data.train_arrays, config.data, data.loader, DataPosition{}).next();
  }
};

test::NamedTensors words(int64_t samples = 10) {
  const at::Tensor ids = at::arange(samples * 3).reshape({samples, 3}) % 7;
  return {{"ids", ids}, {"labels", (ids * 2) % 9}};
}

}  // namespace

TEST_CASE("arrays feed the arguments of their names, the rest are labels", "[runtime][engine][training_data]") {
  const Opened opened(words(), json::object(), /*rank=*/1, /*ranks=*/2);
  const Batch batch = opened.first_batch();
  REQUIRE((batch.inputs.size() == 1 && batch.labels.size() == 1));
  const auto arrays = words();
  CHECK(batch.inputs[0].equal(arrays[0].second.narrow(0, 2, 2)));  // rank 1 has the second half of the batch of 4
  CHECK(batch.labels[0].equal(arrays[1].second.narrow(0, 2, 2)));
}

TEST_CASE("ids and labels beyond what the model holds are refused", "[runtime][engine][training_data]") {
  auto arrays = words();
  arrays[0].second[1][2] = 7;
  expect_error(ExitCode::kBadInput, {"'ids'", "7"}, [&] { Opened(arrays, json::object()).first_batch(); });
  arrays = words();
  arrays[1].second[2][0] = 9;
  expect_error(ExitCode::kBadInput, {"'labels'", "9"}, [&] { Opened(arrays, json::object()).first_batch(); });
  arrays[1].second[2][0] = -100;  // not counted
  CHECK(Opened(arrays, json::object()).first_batch().num_labels == 4 * 3 - 1);
}

TEST_CASE("ids and labels of any integer type are converted, floats are refused with what to do",
          "[runtime][engine][training_data]") {
  auto arrays = words();
  const Batch expected = Opened(arrays, json::object()).first_batch();
  for (const auto type : {at::kInt, at::kShort, at::kChar}) {
    const Batch batch =
        Opened({{"ids", arrays[0].second.to(type)}, {"labels", arrays[1].second.to(type)}}, json::object())
            .first_batch();
    CHECK((batch.inputs[0].equal(expected.inputs[0]) && batch.labels[0].equal(expected.labels[0])));
  }
  expect_error(
      ExitCode::kBadInput,
      {"array 'ids' of the data is Float[3], and forward takes indices for its argument 'ids': save the array as "
       "integers, for example as int64; file: '",
       "data.safetensors'"},
      [&] {
        Opened({{"ids", arrays[0].second.to(at::kFloat)}, arrays[1]}, json::object());
      });
}

TEST_CASE("samples longer than the model's positions are refused before the first step",
          "[runtime][engine][training_data]") {
  model::ModelFacts facts;
  facts.inputs = {{"ids"}, 1};
  facts.length_limits = {{.input = 0, .dim = 1, .bound = 2}};
  const Opened opened(words(), json::object());
  const auto open = [&] { open_training_data(facts, opened.config, {}, 0, at::kFloat, false); };
  expect_error(ExitCode::kBadInput,
               {"array 'ids' of the data is Long[3], and the model has 2 positions: export it with --seq 3, or write "
                "samples of at most 2 tokens (tools/tokenize --seq, data.seq_len); file: '"},
               open);
  facts.length_limits[0].bound = 3;
  CHECK_NOTHROW(open());
  facts.length_limits = {{.input = 0, .dim = -1, .bound = 2}};
  CHECK_THROWS_AS(open(), UserError);
}

TEST_CASE("labels that are the inputs are explained once, unless the model's convention is known",
          "[runtime][engine][training_data]") {
  const auto ids = words()[0].second;
  const Opened opened({{"ids", ids}, {"labels", ids}}, json::object());
  model::ModelFacts facts = opened.model->facts;
  const auto said = [&](int rank) {
    log::set_level(log::Level::kInfo);
    const test::CapturedOutput err(2);
    open_training_data(facts, opened.config, {.data = 2}, rank, at::kFloat, false);
    return err.text();
  };
  const std::string warning = "the array 'labels' is equal to 'ids'";
  CHECK_THAT(said(0), Catch::Contains(warning) && Catch::Contains("learns to repeat its input"));
  CHECK_THAT(said(1), !Catch::Contains(warning));
  facts.labels = LabelConvention::kSame;
  CHECK_THAT(said(0), !Catch::Contains(warning));
}

TEST_CASE("a run's length in steps", "[runtime][engine][training_data]") {
  const auto steps = [](const json& train) {
    const Opened opened(words(), {{"train", train}});
    return count_steps(opened.data, opened.config);
  };
  CHECK(steps({{"steps", 9}}) == 9);
  CHECK(steps(json::object()) == 2);  // one epoch of 10 samples in batches of 4; the last 2 are dropped
  CHECK(steps({{"epochs", 3}}) == 6);
  CHECK(steps({{"epochs", 3}, {"steps", 5}}) == 5);
  CHECK(steps({{"epochs", 3}, {"steps", 50}}) == 6);
}

TEST_CASE("losses by tokens need one array of labels", "[runtime][engine][training_data]") {
  auto arrays = words();
  CHECK_NOTHROW(Opened(arrays, {{"loss_average", "tokens"}}));
  arrays.emplace_back("y", at::ones({10, 3}));
  expect_error(ExitCode::kBadInput, {"counts the labels of one array", "data.labels"}, [&] {
    Opened(arrays, {{"loss_average", "tokens"}});
  });
}

TEST_CASE("evaluation data must have samples", "[runtime][engine][training_data]") {
  expect_error(ExitCode::kBadInput, {"evaluation data", "has no samples"}, [&] {
    Opened(words(), json::object(), 0, 1,
           {{"ids", at::zeros({0, 3}, at::kLong)}, {"labels", at::zeros({0, 3}, at::kLong)}});
  });
  const Opened with_eval(words(), json::object(), 0, 1, words(5));
  CHECK(with_eval.data.eval->num_samples() == 5);
  CHECK_NOTHROW(require_evaluation_data(with_eval.data, with_eval.config.data));
  CHECK_NOTHROW(require_evaluation_data(Opened(words(), json::object()).data, {}));
  expect_error(ExitCode::kBadInput, {"--eval_only needs data"}, [&] { require_evaluation_data({}, {}); });
  config::Data synthetic;
  synthetic.synthetic_train = true;
  expect_error(ExitCode::kBadInput, {"synthetic data is endless"}, [&] {
    require_evaluation_data(with_eval.data.eval ? TrainingData{with_eval.data.train} : TrainingData{}, synthetic);
  });
}

TEST_CASE("ranks that found different data say so, all of them", "[runtime][engine][training_data]") {
  const Opened ten(words(10), json::object()), nine(words(9), json::object()),
      eval(words(10), json::object(), 0, 1, words(3));
  const auto errors_of = [](const TrainingData& on_rank_0, const TrainingData& on_rank_1) {
    std::vector<std::string> errors(2);
    test::run_mesh({.data = 2}, [&](const comm::Groups& groups) {
      const int rank = groups.world.rank();
      try {
        require_same_data(rank == 0 ? on_rank_0 : on_rank_1, groups.world, at::kCPU);
      } catch (const UserError& error) {
        errors[static_cast<size_t>(rank)] = error.what();
      }
    });
    CHECK(errors[0] == errors[1]);
    return errors[0];
  };
  CHECK(errors_of(ten.data, ten.data).empty());
  CHECK_THAT(errors_of(ten.data, nine.data),
             Catch::Contains("rank 0 found 10 samples of training data and rank 1 found 9"));
  CHECK_THAT(errors_of(ten.data, eval.data),
             Catch::Contains("rank 0 found 0 samples of evaluation data and rank 1 found 3"));
}

TEST_CASE("arrays are cut along the positions of the token ids, where it is known which those are",
          "[runtime][engine][training_data]") {
  const json curriculum{{"curriculum_learning",
                         {{"enabled", true},
                          {"curriculum_type", "seqlen"},
                          {"min_difficulty", 2},
                          {"max_difficulty", 3},
                          {"schedule_type", "fixed_discrete"},
                          {"schedule_config", {{"difficulty", {2, 3}}, {"max_step", {1}}}}}}};
  const Opened opened(words(), curriculum);
  BatchLoader loader(opened.data.train, opened.data.train_arrays, opened.config.data, opened.data.loader,
                     {DataPosition{}, 0, opened.data.schedule});
  const auto arrays = words();
  const Batch cut = loader.next(), whole = loader.next();
  CHECK(cut.inputs[0].equal(arrays[0].second.narrow(0, 0, 4).narrow(1, 0, 2)));
  CHECK(cut.labels[0].equal(arrays[1].second.narrow(0, 0, 4).narrow(1, 0, 2)));
  CHECK((cut.num_tokens == 8 && cut.num_labels == 8 && whole.num_tokens == 12));
  CHECK(whole.inputs[0].equal(arrays[0].second.narrow(0, 4, 4)));

  const model::ModelFacts& facts = opened.model->facts;
  const auto dims_of = [&](const std::vector<ArrayInfo>& infos) {
    return find_sequence_dims(facts, infos, {0}, {.inputs = {0}, .labels = {1}}).of_arrays;
  };
  const ArrayInfo ids{"ids", at::kLong, {3}};
  using Dims = std::map<std::string, std::vector<int64_t>>;
  CHECK(dims_of({ids, {"mask", at::kBool, {1, 3, 3}}}) == Dims{{"ids", {0}}, {"mask", {1, 2}}});
  CHECK(dims_of({ids, {"label", at::kLong, {}}}) == Dims{{"ids", {0}}});
  expect_error(ExitCode::kBadInput, {"'bias' is Float[3, 3]", "2 of its dims have the length 3"}, [&] {
    dims_of({ids, {"bias", at::kFloat, {3, 3}}});
  });
  expect_error(ExitCode::kBadInput, {"'start_positions' is Long[]", "behind the cut"}, [&] {
    dims_of({ids, {"start_positions", at::kLong, {}}});
  });
  expect_error(ExitCode::kBadInput, {"not known which array has the positions"}, [&] {
    dims_of({{"ids", at::kLong, {3, 3}}, {"labels", at::kLong, {3}}});
  });
}

TEST_CASE("normalized bytes are to the model what floats are", "[runtime][engine][training_data]") {
  const at::Tensor pixels = (at::arange(10 * 24) * 37 % 256).to(at::kByte).view({10, 2, 4, 3});
  const at::Tensor mean = at::tensor({0.4F, 0.5F}).view({2, 1, 1}),
                   deviation = at::tensor({0.2F, 0.3F}).view({2, 1, 1});
  const at::Tensor labels = at::arange(10) % 9;
  const json normalize{{"data", {{"normalize", {{"mean", {0.4, 0.5}}, {"std", {0.2, 0.3}}}}}}};
  const Opened bytes({{"x", pixels}, {"labels", labels}}, normalize, 0, 1, {}, make_pixels());
  const Opened floats({{"x", (pixels.to(at::kFloat) / 255 - mean) / deviation}, {"labels", labels}}, json::object(), 0,
                      1, {}, make_pixels());
  const MicroBatch batch = on_device(bytes.first_batch(), at::kCPU);
  CHECK(batch.inputs[0].equal(on_device(floats.first_batch(), at::kCPU).inputs[0]));
  CHECK(batch.num_tokens == 0);
  // Without data.eval a run that only evaluates reads the training data: without chance, too.
  const json cropped{{"data", {{"random_crop", {{"size", {3, 3}}}}, {"random_flip", true}}}};
  const Opened parts({{"x", pixels}, {"labels", labels}}, cropped, 0, 1, {}, make_pixels());
  EvaluationLoader loader(parts.data.train, parts.data.train_arrays, parts.config.data, parts.data.loader);
  CHECK(on_device(*loader.next(), at::kCPU).inputs[0].equal(pixels.narrow(0, 0, 4).narrow(2, 0, 3)));
  expect_error(ExitCode::kBadInput, {"array 'ids' of the data is Float[1, 1, 3], and forward takes indices"}, [&] {
    Opened({{"ids", at::ones({10, 1, 1, 3}, at::kByte)}, {"labels", labels}},
           {{"data", {{"normalize", {{"mean", {0.4}}, {"std", {0.2}}}}}}});
  });
}
