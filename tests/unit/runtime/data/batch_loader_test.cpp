#include "runtime/data/batch_loader.hpp"

#include <ATen/ops/tensor.h>

#include <atomic>
#include <catch2/catch.hpp>
#include <cstring>

#include "support/expect_error.hpp"

using namespace dslaunch;
using namespace dslaunch::runtime;
using test::expect_error;

namespace {

// Arrays in memory: x float32 [2] = (i, -i), h uint16 [] = 60000 + i, ids int64 [3] = i everywhere, labels int64 [] =
// i.
class CountingSamples : public SampleSource {
 public:
  explicit CountingSamples(int64_t num_samples) : num_samples_(num_samples) {}
  const std::vector<ArrayInfo>& arrays() const override { return arrays_; }
  int64_t num_samples() const override { return num_samples_; }
  std::string describe(size_t, int64_t) const override { return "'memory'"; }
  void read(size_t array, int64_t sample, void* out) const override {
    if (array == 0) {
      const float values[2] = {static_cast<float>(sample), -static_cast<float>(sample)};
      std::memcpy(out, values, sizeof values);
    } else if (array == 1) {
      const auto value = static_cast<uint16_t>(60000 + sample);
      std::memcpy(out, &value, sizeof value);
    } else {
      const int64_t value = sample == ignored ? -100 : sample;
      for (int i = 0; i < (array == 2 ? 3 : 1); ++i) static_cast<int64_t*>(out)[i] = value;
    }
  }
  int64_t ignored = -1;

 private:
  int64_t num_samples_;
  std::vector<ArrayInfo> arrays_{
      {"x", at::kFloat, {2}}, {"h", at::kUInt16, {}}, {"ids", at::kLong, {3}}, {"labels", at::kLong, {}}};
};

config::Data data_with(int64_t num_workers, bool shuffle = false) {
  config::Data data;
  data.shuffle = shuffle;
  data.num_workers = num_workers;
  data.prefetch = 3;
  return data;
}

LoaderOptions options_with(config::Batch batch, int rank = 0, int data_parallel = 1) {
  return {.rank = rank, .data_parallel = data_parallel, .batch = batch};
}

const ArraySelection kAll{{0, 1, 2}, {3}};

}  // namespace

TEST_CASE("labels of floats have a type of their own", "[runtime][data][batch_loader]") {
  LoaderOptions options = options_with({.train_batch = 2, .micro_batch = 2, .accumulation = 1});
  options.assembly.compute_dtype = at::kBFloat16;
  const ArraySelection reconstruction{{0}, {0}};
  BatchLoader loader(std::make_shared<CountingSamples>(10), reconstruction, data_with(2), options, DataPosition{0, 4});
  const Batch batch = loader.next();
  CHECK(batch.inputs[0].scalar_type() == at::kBFloat16);
  CHECK(batch.labels[0].scalar_type() == at::kFloat);
}

TEST_CASE("a batch holds rows in order, floats cast, integers kept", "[runtime][data][batch_loader]") {
  LoaderOptions options = options_with({.train_batch = 2, .micro_batch = 2, .accumulation = 1});
  options.assembly.compute_dtype = at::kBFloat16;
  BatchLoader loader(std::make_shared<CountingSamples>(10), kAll, data_with(2), options, DataPosition{0, 4});
  const Batch batch = loader.next();
  REQUIRE(batch.inputs.size() == 3);
  REQUIRE(batch.labels.size() == 1);
  CHECK(batch.inputs[0].scalar_type() == at::kBFloat16);
  CHECK(batch.inputs[0].to(at::kFloat).equal(at::tensor({4.f, -4.f, 5.f, -5.f}).view({2, 2})));
  CHECK(batch.inputs[1].equal(at::tensor({60004, 60005}, at::kLong)));  // torch has no operators for uint16
  CHECK(batch.inputs[2].sizes() == at::IntArrayRef({2, 3}));
  CHECK(batch.labels[0].equal(at::tensor({4, 5}, at::kLong)));
  CHECK(batch.num_samples == 2);
  CHECK(batch.num_tokens == 6);
  CHECK(batch.first == DataPosition{0, 4});
  CHECK(batch.after == DataPosition{0, 6});
}

TEST_CASE("8-bit floats are cast as all floats are", "[runtime][data][batch_loader]") {
  class EightBits : public SampleSource {
   public:
    const std::vector<ArrayInfo>& arrays() const override { return arrays_; }
    int64_t num_samples() const override { return 4; }
    std::string describe(size_t, int64_t) const override { return "'memory'"; }
    void read(size_t array, int64_t sample, void* out) const override {
      const auto value = static_cast<float>(sample) - 1.5F;
      const uint8_t bits = array == 0 ? c10::Float8_e4m3fn(value).x : c10::Float8_e5m2(value).x;
      std::memcpy(out, &bits, 1);
    }

   private:
    std::vector<ArrayInfo> arrays_{{"a", at::kFloat8_e4m3fn, {}}, {"b", at::kFloat8_e5m2, {}}};
  };
  for (const at::ScalarType dtype : {at::kFloat, at::kBFloat16, at::kHalf}) {
    LoaderOptions options = options_with({.train_batch = 4, .micro_batch = 4, .accumulation = 1});
    options.assembly.compute_dtype = dtype;
    BatchLoader loader(std::make_shared<EightBits>(), {{0, 1}, {}}, data_with(0), options, DataPosition{0, 0});
    for (const at::Tensor& values : loader.next().inputs) {
      CHECK(values.equal(at::tensor({-1.5F, -0.5F, 0.5F, 1.5F}).to(dtype)));
    }
  }
}

TEST_CASE("workers hand out the same batches as none, in order", "[runtime][data][batch_loader]") {
  const config::Batch batch{.train_batch = 12, .micro_batch = 2, .accumulation = 3};
  const auto source = std::make_shared<CountingSamples>(31);
  const LoaderOptions options = options_with(batch, 1, 2);
  BatchLoader plain(source, kAll, data_with(0, true), options, {});
  BatchLoader threaded(source, kAll, data_with(3, true), options, {});
  for (int i = 0; i < 50; ++i) {
    const Batch expected = plain.next(), got = threaded.next();
    REQUIRE(got.labels[0].equal(expected.labels[0]));
    REQUIRE(got.first == expected.first);
    REQUIRE(threaded.position() == plain.position());
  }
}

TEST_CASE("the position moves when a global batch is complete", "[runtime][data][batch_loader]") {
  BatchLoader loader(std::make_shared<CountingSamples>(10), kAll, data_with(2),
                     options_with({.train_batch = 4, .micro_batch = 2, .accumulation = 2}), {});
  CHECK(loader.position() == DataPosition{0, 0});
  loader.next();
  CHECK(loader.position() == DataPosition{0, 0});
  loader.next();
  CHECK(loader.position() == DataPosition{0, 4});
}

TEST_CASE("a value out of range is named and reaches the caller in its place", "[runtime][data][batch_loader]") {
  const int64_t num_workers = GENERATE(0, 2);
  LoaderOptions options = options_with({.train_batch = 2, .micro_batch = 2, .accumulation = 1});
  options.assembly.limits = {{"ids", {{5, {}, {}}}}};
  BatchLoader loader(std::make_shared<CountingSamples>(10), kAll, data_with(num_workers), options, {});
  CHECK(loader.next().num_samples == 2);
  CHECK(loader.next().num_samples == 2);
  expect_error(ExitCode::kBadInput, {"'ids'", "sample 5", "element 0", "value 5", "0 to 4", "'memory'"},
               [&] { loader.next(); });
}

TEST_CASE("a bound of some columns leaves the others alone", "[runtime][data][batch_loader]") {
  LoaderOptions options = options_with({.train_batch = 10, .micro_batch = 10, .accumulation = 1});
  const auto first_batch = [&](const IndexRange& range) {
    options.assembly.limits = {{"ids", {{5, {}, range}}}};
    return BatchLoader(std::make_shared<CountingSamples>(10), kAll, data_with(0), options, {}).next();
  };
  CHECK(first_batch({1, 3, 4}).num_samples == 10);  // there are three columns
  CHECK(first_batch({2, 0, 1}).num_samples == 10);  // and no such dim
  CHECK(first_batch({0, 0, 1}).num_samples == 10);  // which samples those are depends on the batch
  expect_error(ExitCode::kBadInput, {"'ids'", "sample 5", "element 2", "value 5"}, [&] { first_batch({-1, -1}); });
  expect_error(ExitCode::kBadInput, {"'ids'", "sample 5", "element 1", "value 5"}, [&] { first_batch({1, 1, -1}); });
}

TEST_CASE("minus one hundred is a label to ignore, but no id", "[runtime][data][batch_loader]") {
  auto source = std::make_shared<CountingSamples>(4);
  source->ignored = 1;
  LoaderOptions options = options_with({.train_batch = 2, .micro_batch = 2, .accumulation = 1});
  options.assembly.limits = {{"labels", {{4, -100, {}}}}};
  CHECK(BatchLoader(source, kAll, data_with(0), options, {}).next().labels[0].equal(at::tensor({0, -100}, at::kLong)));
  options.assembly.limits = {{"ids", {{4, {}, {}}}}};
  expect_error(ExitCode::kBadInput, {"'ids'", "sample 1", "value -100"},
               [&] { BatchLoader(source, kAll, data_with(0), options, {}).next(); });
  options.assembly.limits = {{"labels", {{3, -100, {}}}}};
  BatchLoader loader(source, kAll, data_with(0), options, DataPosition{0, 2});
  expect_error(ExitCode::kBadInput, {"'labels'", "sample 3", "value 3", "-100 for labels"}, [&] { loader.next(); });
}

TEST_CASE("too few samples for a batch are told with the numbers", "[runtime][data][batch_loader]") {
  const LoaderOptions options = options_with({.train_batch = 32, .micro_batch = 4, .accumulation = 2}, 0, 4);
  expect_error(ExitCode::kBadInput, {"10 sample(s)", "batch of 32", "4 x accumulation 2 x 4", "drop_last"},
               [&] { BatchLoader(std::make_shared<CountingSamples>(10), kAll, data_with(2), options, {}); });
  expect_error(ExitCode::kBadInput, {"no samples"},
               [&] { BatchLoader(std::make_shared<CountingSamples>(0), kAll, data_with(2), options, {}); });
  config::Data joined = data_with(2);
  joined.drop_last = false;
  BatchLoader loader(std::make_shared<CountingSamples>(3), kAll, joined, options, {});
  CHECK(loader.next().labels[0].equal(at::tensor({0, 1, 2, 0}, at::kLong)));
}

TEST_CASE("synthetic data has no epochs", "[runtime][data][batch_loader]") {
  const auto source = make_synthetic_samples({{.name = "x", .shape = {1}}}, 0);
  expect_error(ExitCode::kBadInput, {"--steps"}, [&] { steps_in_epochs(*source, config::Data{}, config::Batch{}, 1); });
  CHECK(steps_in_epochs(CountingSamples(10), config::Data{}, {.train_batch = 4, .micro_batch = 4}, 2) == 4);
}

TEST_CASE("an evaluation passes once over all samples on all ranks", "[runtime][data][batch_loader]") {
  const int64_t num_workers = GENERATE(0, 2);
  const auto source = std::make_shared<CountingSamples>(7);
  std::vector<int64_t> seen;
  for (int rank = 0; rank < 3; ++rank) {
    EvaluationLoader loader(source, kAll, data_with(num_workers, true),
                            options_with({.train_batch = 6, .micro_batch = 2, .accumulation = 1}, rank, 3));
    int num_batches = 0;
    for (; const auto batch = loader.next(); ++num_batches) {
      CHECK(batch->labels[0].numel() >= 1);
      for (int64_t i = 0; i < batch->num_samples; ++i) seen.push_back(batch->labels[0][i].item<int64_t>());
    }
    CHECK(num_batches == 2);
    CHECK_FALSE(loader.next());
  }
  std::sort(seen.begin(), seen.end());
  CHECK(seen == std::vector<int64_t>{0, 1, 2, 3, 4, 5, 6});
}

TEST_CASE("labels that count are counted, and fillers have none", "[runtime][data][batch_loader]") {
  auto source = std::make_shared<CountingSamples>(5);
  source->ignored = 1;
  const config::Batch batch{.train_batch = 4, .micro_batch = 4, .accumulation = 1};
  BatchLoader loader(source, kAll, data_with(0), options_with(batch), {});
  CHECK(loader.next().num_labels == 3);
  EvaluationLoader filler(source, kAll, data_with(0), options_with({.train_batch = 8, .micro_batch = 4}, 1, 2));
  CHECK(filler.next()->num_labels == 2);  // samples 3 and 4
  EvaluationLoader none(std::make_shared<CountingSamples>(1), kAll, data_with(0),
                        options_with({.train_batch = 8, .micro_batch = 4}, 1, 2));
  const auto repeated = none.next();
  CHECK(repeated->num_labels == 0);
  CHECK(repeated->labels[0].numel() == 1);
}

TEST_CASE("a loader that is dropped early stops its workers", "[runtime][data][batch_loader]") {
  for (int i = 0; i < 20; ++i) {
    BatchLoader loader(std::make_shared<CountingSamples>(100), kAll, data_with(4),
                       options_with({.train_batch = 2, .micro_batch = 2, .accumulation = 1}), {});
    if (i % 2) loader.next();
  }
}

TEST_CASE("labels to ignore are not counted, whatever their type", "[runtime][data][batch_loader]") {
  class Labels : public SampleSource {
   public:
    explicit Labels(at::ScalarType dtype) : arrays_{{"labels", dtype, {3}}} {}
    const std::vector<ArrayInfo>& arrays() const override { return arrays_; }
    int64_t num_samples() const override { return 2; }
    std::string describe(size_t, int64_t) const override { return "'memory'"; }
    void read(size_t, int64_t sample, void* out) const override {
      const at::Tensor row =
          at::tensor({int64_t{1}, int64_t{-100}, sample == 0 ? int64_t{-100} : int64_t{2}}, at::kLong);
      const at::Tensor values = row.to(arrays_[0].dtype);
      std::memcpy(out, values.const_data_ptr(), values.nbytes());
    }

   private:
    std::vector<ArrayInfo> arrays_;
  };
  for (const auto dtype : {at::kLong, at::kInt, at::kShort, at::kChar, at::kFloat}) {
    INFO(c10::toString(dtype));
    const MicroBatchPlan both{.samples = {0, 1}, .num_samples = 2};
    const auto count = [&](bool has_ignored) {
      AssemblyOptions options;
      options.has_ignored_labels = has_ignored;
      return BatchAssembler(std::make_shared<Labels>(dtype), {{}, {0}}, options).assemble(both).num_labels;
    };
    CHECK(count(true) == (dtype == at::kFloat ? 6 : 3));
    CHECK(count(false) == 6);
  }
}

TEST_CASE("a run that resumes in the middle of an epoch reads what an unbroken run would",
          "[runtime][data][batch_loader]") {
  const config::Batch batch{.train_batch = 4, .micro_batch = 1, .accumulation = 2};
  const auto source = std::make_shared<CountingSamples>(11);
  const auto options = [&](int rank) { return options_with(batch, rank, 2); };
  for (const int64_t num_workers : {0, 2}) {
    for (int steps = 1; steps <= 7; ++steps) {  // an epoch has two batches and a remainder
      for (const int rank : {0, 1}) {
        BatchLoader whole(source, kAll, data_with(num_workers, true), options(rank), {});
        for (int i = 0; i < 2 * steps; ++i) whole.next();
        BatchLoader resumed(source, kAll, data_with(num_workers, true), options(rank), whole.position());
        for (int i = 0; i < 6; ++i) CHECK(resumed.next().labels[0].equal(whole.next().labels[0]));
        CHECK(resumed.position() == whole.position());
      }
    }
  }
}
