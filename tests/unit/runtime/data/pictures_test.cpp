// Pictures cropped, mirrored and normalized on the batch's device, against PyTorch's own operators.
#include "runtime/data/pictures.hpp"

#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/constant_pad_nd.h>
#include <ATen/ops/flip.h>
#include <ATen/ops/tensor.h>

#include <catch2/catch.hpp>
#include <cstring>
#include <map>
#include <set>

#include "runtime/data/batch_loader.hpp"
#include "support/expect_error.hpp"

using namespace dslaunch;
using namespace dslaunch::runtime;
using test::expect_error;

namespace {

// x uint8 [2, 8, 6], different in each sample; f float32 of the same shape; ids int64 [5].
class Pictures : public SampleSource {
 public:
  explicit Pictures(int64_t num_samples = 24) : num_samples_(num_samples) {}
  const std::vector<ArrayInfo>& arrays() const override { return arrays_; }
  int64_t num_samples() const override { return num_samples_; }
  std::string describe(size_t, int64_t) const override { return "'memory'"; }
  void read(size_t array, int64_t sample, void* out) const override {
    const at::Tensor values = picture(sample).to(arrays_[array].dtype);
    std::memcpy(out, values.const_data_ptr(), static_cast<size_t>(arrays_[array].sample_bytes()));
  }
  static at::Tensor picture(int64_t sample) {
    return ((at::arange(2 * 8 * 6) * 37 + 11 * sample) % 256).to(at::kByte).view({2, 8, 6});
  }

 private:
  int64_t num_samples_;
  std::vector<ArrayInfo> arrays_{{"x", at::kByte, {2, 8, 6}}, {"f", at::kFloat, {2, 8, 6}}, {"ids", at::kLong, {5}}};
};

config::Data with_all() {
  config::Data data;
  data.normalize = config::Normalize{{0.485, 0.4}, {0.229, 0.3}};
  data.random_crop = config::RandomCrop{{7, 4}, 2};
  data.random_flip = true;
  data.seed = 3;
  data.num_workers = 0;
  return data;
}

PictureTransforms transforms(const config::Data& data, std::vector<size_t> inputs = {0},
                             at::ScalarType dtype = at::kFloat) {
  return picture_transforms(data, Pictures(), inputs, dtype);
}

LoaderOptions options(const config::Data& data, int rank, int ranks, int64_t accumulation) {
  LoaderOptions out{.rank = rank, .data_parallel = ranks, .batch = {12, 12 / (ranks * accumulation), accumulation}};
  out.assembly.pictures = transforms(data);
  return out;
}

// By epoch and sample, what the steps of all ranks take of the pictures.
using Views = std::map<std::pair<int64_t, int64_t>, std::vector<int64_t>>;
Views views_of(const config::Data& data, int ranks, int64_t accumulation, int64_t steps, DataPosition start = {}) {
  Views out;
  const auto source = std::make_shared<Pictures>();
  for (int rank = 0; rank < ranks; ++rank) {
    BatchLoader loader(source, {{0}, {}}, data, options(data, rank, ranks, accumulation), start);
    for (int64_t i = 0; i < steps * accumulation; ++i) {
      const Batch batch = loader.next();
      const at::Tensor views = batch.pictures.at(0).views;
      for (int64_t row = 0; row < batch.inputs[0].size(0); ++row) {
        for (int64_t sample = 0; sample < source->num_samples(); ++sample) {
          if (!batch.inputs[0][row].equal(Pictures::picture(sample))) continue;
          const auto* view = views.const_data_ptr<int64_t>() + 3 * row;
          out[{batch.first.epoch, sample}] = {view[0], view[1], view[2]};
        }
      }
    }
  }
  return out;
}

}  // namespace

TEST_CASE("pixels are normalized as PyTorch does it, to the bit", "[runtime][data][pictures]") {
  config::Data data;
  data.normalize = config::Normalize{{0.485, 0.4}, {0.229, 0.3}};
  const at::Tensor pixels = at::arange(512).remainder(256).to(at::kByte).view({1, 2, 16, 16});
  const at::Tensor mean = at::tensor({0.485F, 0.4F}).view({2, 1, 1}),
                   deviation = at::tensor({0.229F, 0.3F}).view({2, 1, 1});
  const at::Tensor expected = (pixels.to(at::kFloat) / 255 - mean) / deviation;
  for (const auto dtype : {at::kFloat, at::kBFloat16, at::kHalf}) {
    const auto transform = transforms(data, {0}, dtype).at("x");
    CHECK_FALSE(picture_views(*transform, {.samples = {0}}).defined());
    CHECK(transform_pictures(*transform, pixels, {}).equal(expected.to(dtype)));
  }
}

TEST_CASE("parts of pictures are those that slices give", "[runtime][data][pictures]") {
  config::Data data = with_all();
  data.normalize.reset();
  const auto transform = transforms(data).at("x");
  const at::Tensor pictures = Pictures::picture(1).unsqueeze(0).expand({4, 2, 8, 6});
  const at::Tensor views = at::tensor({0, 0, 0, 5, 6, 1, 2, 2, 1, 3, 1, 0}, at::kLong).view({4, 3});
  const at::Tensor parts = transform_pictures(*transform, pictures, views);
  REQUIRE(parts.sizes() == at::IntArrayRef({4, 2, 7, 4}));
  const at::Tensor padded = at::constant_pad_nd(Pictures::picture(1), {2, 2, 2, 2});
  for (int64_t i = 0; i < 4; ++i) {
    const auto view = [&](int64_t which) { return views[i][which].item<int64_t>(); };
    const at::Tensor part = padded.narrow(1, view(0), 7).narrow(2, view(1), 4);
    CHECK(parts[i].equal(view(2) != 0 ? part.flip({2}) : part));
  }
}

TEST_CASE("parts depend on the seed, the step and the sample alone", "[runtime][data][pictures]") {
  config::Data data = with_all();
  const Views whole = views_of(data, 1, 1, 4);  // two epochs
  CHECK(whole.size() == 48);
  CHECK(views_of(data, 2, 3, 4) == whole);
  CHECK(views_of(data, 3, 2, 4) == whole);
  Views resumed = views_of(data, 2, 1, 3, {0, 12});
  resumed.merge(views_of(data, 1, 1, 1));
  CHECK(resumed == whole);
  data.seed = 4;
  CHECK(views_of(data, 1, 1, 4) != whole);
  std::set<int64_t> tops, lefts, mirrored;
  int64_t num_changed = 0;  // from one epoch to the next
  for (const auto& [of, view] : whole) {
    num_changed += view != whole.at({0, of.second}) ? 1 : 0;
    tops.insert(view[0]);
    lefts.insert(view[1]);
    mirrored.insert(view[2]);
  }
  CHECK(num_changed > 18);
  CHECK(tops == std::set<int64_t>{0, 1, 2, 3, 4, 5});
  CHECK(lefts == std::set<int64_t>{0, 1, 2, 3, 4, 5, 6});
  CHECK(mirrored == std::set<int64_t>{0, 1});
}

TEST_CASE("an evaluation takes the middle of each picture", "[runtime][data][pictures]") {
  config::Data data = with_all();
  data.normalize.reset();
  EvaluationLoader loader(std::make_shared<Pictures>(3), {{0}, {}}, data, options(data, 0, 1, 1));
  const auto batch = loader.next();
  const auto& work = batch->pictures.at(0);
  const at::Tensor parts = transform_pictures(*work.transform, batch->inputs[0], work.views);
  for (int64_t i = 0; i < 3; ++i) {
    const at::Tensor padded = at::constant_pad_nd(Pictures::picture(i), {2, 2, 2, 2});
    CHECK(parts[i].equal(padded.narrow(1, 2, 7).narrow(2, 3, 4)));
  }
}

TEST_CASE("normalized pictures are no tokens, and floats to the model", "[runtime][data][pictures]") {
  const config::Data data = with_all();
  const MicroBatchPlan plan{.samples = {0, 1}, .num_samples = 2};
  AssemblyOptions assembly;
  const auto count = [&] {
    return BatchAssembler(std::make_shared<Pictures>(), {{0, 2}, {}}, assembly).assemble(plan).num_tokens;
  };
  CHECK(count() == 2 * 96);
  assembly.pictures = transforms(data);
  CHECK(count() == 2 * 5);
  const auto arrays = arrays_of_forward(data, Pictures().arrays());
  CHECK((arrays[0].dtype == at::kFloat && arrays[2].dtype == at::kLong));
}

TEST_CASE("data that is not what the config says of pictures is refused", "[runtime][data][pictures]") {
  config::Data data = with_all();
  expect_error(ExitCode::kBadInput,
               {"data.normalize: none of the inputs is a picture", "'ids' is Long[5]; leave it out, or name the"},
               [&] { transforms(data, {2}); });
  expect_error(ExitCode::kBadInput,
               {"data.normalize: 'f' is Float[2, 8, 6] of a sample, and it takes uint8 pixels: save the pictures as"},
               [&] { transforms(data, {1}); });
  data.normalize = config::Normalize{{0.5, 0.5, 0.5}, {0.2, 0.2, 0.2}};
  expect_error(ExitCode::kBadInput,
               {"'x' is Byte[2, 8, 6] of a sample, [channels, height, width], and mean and std have 3 number(s)"},
               [&] { transforms(data); });
  data.normalize.reset();
  for (const auto& size : {std::vector<int64_t>{13, 4}, {7, 11}}) {
    data.random_crop->size = size;
    expect_error(ExitCode::kBadInput, {"data.random_crop: a part of [", "does not fit: 'x' is Byte[2, 8, 6]"},
                 [&] { transforms(data); });
  }
  data.random_crop->size = {12, 10};
  CHECK_NOTHROW(transforms(data));
  data.random_crop.reset();
  expect_error(ExitCode::kBadInput, {"data.random_flip: none of the inputs"}, [&] { transforms(data, {2}); });
}
