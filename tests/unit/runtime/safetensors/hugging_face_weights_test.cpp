// Slices of a model's tensors out of a directory of Hugging Face, whatever form the files have.
#include "runtime/state/hugging_face_weights.hpp"

#include <ATen/ATen.h>

#include <catch2/catch.hpp>
#include <map>

#include "runtime/state/safetensors_writer.hpp"
#include "support/expect_error.hpp"
#include "support/temp_dir.hpp"

using namespace dslaunch;
using namespace dslaunch::runtime;
using test::expect_error;
using test::TempDir;
using Tensors = std::vector<std::pair<std::string, at::Tensor>>;

namespace {

void write(const std::string& path, const Tensors& tensors) {
  std::vector<TensorDescription> descriptions;
  for (const auto& [name, value] : tensors) {
    descriptions.push_back({name, value.scalar_type(), value.sizes().vec()});
  }
  SafetensorsWriter writer(path, descriptions);
  const std::map<std::string, at::Tensor> values(tensors.begin(), tensors.end());
  for (const auto& each : writer.order()) writer.write(values.at(each.name).contiguous());
  writer.finish(/*sync=*/false);
}

HuggingFacePiece cut_of(const std::string& name, const at::Tensor& whole, const at::Tensor& view) {
  return {name, false, view.storage_offset() - whole.storage_offset(), view.sizes().vec(), view.strides().vec()};
}

// Every slice is that of the whole tensor.
void check_slices(const HuggingFaceWeights& weights, const HuggingFaceFacts& facts, const at::Tensor& whole,
                  at::ScalarType dtype = at::kFloat) {
  const auto located = weights.locate(facts, "w", whole.sizes().vec());
  const at::Tensor flat = whole.reshape({-1});
  for (int64_t begin = 0; begin < flat.numel(); ++begin) {
    for (int64_t count = 0; begin + count <= flat.numel(); ++count) {
      at::Tensor out = at::full({count}, -1, dtype);
      weights.read(located, begin, out);
      REQUIRE(out.equal(flat.narrow(0, begin, count).to(dtype)));
    }
  }
}

}  // namespace

TEST_CASE("slices of tensors that files have whole, transposed, in rows and one by one",
          "[runtime][safetensors][hugging_face_weights]") {
  const at::Tensor whole = at::arange(2 * 3 * 4, at::kFloat).view({2, 3, 4});
  const std::vector<std::vector<at::Tensor>> cuts{
      {whole[0], whole[1]},                               // experts
      {whole.transpose(1, 2)},                            // matrices that are transposed
      {whole.permute({2, 0, 1})},                         // all dims in another order
      {whole.narrow(2, 0, 1), whole.narrow(2, 1, 3)},     // columns
      {whole.slice(1, 0, 3, 2), whole.narrow(1, 1, 1)}};  // rows that are interleaved
  for (size_t i = 0; i < cuts.size(); ++i) {
    INFO("cut " << i);
    TempDir dir;
    HuggingFaceFacts facts;
    facts.parameters = {{"w", "w"}};
    Tensors tensors;
    for (const auto& view : cuts[i]) {
      const std::string name = "piece" + std::to_string(tensors.size());
      facts.files["w"].push_back(cut_of(name, whole, view));
      tensors.emplace_back(name, view);
    }
    write(dir / "model.safetensors", tensors);
    const HuggingFaceWeights weights(dir.path());
    CHECK_NOTHROW(weights.require_names(facts));
    check_slices(weights, facts, whole);
  }
}

TEST_CASE("values are cast, and a file that has the tensor whole after all is read as it is",
          "[runtime][safetensors][hugging_face_weights]") {
  const at::Tensor whole = at::arange(12, at::kFloat).view({3, 4});
  TempDir dir;
  write(dir / "model.safetensors", {{"w", whole.to(at::kBFloat16)}});
  HuggingFaceFacts facts;
  facts.parameters = {{"w", "w"}};
  facts.files["w"] = {cut_of("a", whole, whole[0]), cut_of("b", whole, whole.narrow(0, 1, 2))};
  const HuggingFaceWeights weights(dir.path());
  check_slices(weights, facts, whole);
  check_slices(weights, facts, whole, at::kHalf);
}

TEST_CASE("integers are no values of a weight", "[runtime][safetensors][hugging_face_weights]") {
  TempDir dir;
  write(dir / "model.safetensors", {{"w", at::arange(6, at::kInt)}});
  HuggingFaceFacts facts;
  facts.parameters = {{"w", "w"}};
  const HuggingFaceWeights weights(dir.path());
  const auto located = weights.locate(facts, "w", {6});
  expect_error(ExitCode::kBadInput, {dir.path(), "'w' as Int, and the model's is Float"},
               [&] { weights.read(located, 0, at::empty({6})); });
  at::Tensor positions = at::empty({6}, at::kLong);
  weights.read(located, 0, positions);
  CHECK(positions.equal(at::arange(6)));
}

TEST_CASE("tensors longer than one chunk", "[runtime][safetensors][hugging_face_weights]") {
  const at::Tensor whole = at::arange(20'000'003, at::kInt).to(at::kFloat);
  TempDir dir;
  write(dir / "model.safetensors", {{"odd", at::zeros({3}, at::kBool)}, {"w", whole}});
  HuggingFaceFacts facts;
  facts.parameters = {{"w", "w"}};
  const HuggingFaceWeights weights(dir.path());
  at::Tensor out = at::empty({20'000'000});
  weights.read(weights.locate(facts, "w", {20'000'003}), 2, out);
  CHECK(out.equal(whole.narrow(0, 2, 20'000'000)));
}

TEST_CASE("a tied tensor is read under the name that the files have", "[runtime][safetensors][hugging_face_weights]") {
  TempDir dir;
  write(dir / "model.safetensors", {{"head", at::ones({2})}});
  HuggingFaceFacts facts;
  facts.parameters = {{"x", "embedding"}};
  facts.tied = {{"head", "embedding"}};
  const HuggingFaceWeights weights(dir.path());
  CHECK_NOTHROW(weights.require_names(facts));
  CHECK(weights.locate(facts, "embedding", {2}).size() == 1);
}

TEST_CASE("pieces that do not make up the tensor are refused", "[runtime][safetensors][hugging_face_weights]") {
  const at::Tensor whole = at::arange(12, at::kFloat).view({3, 4});
  TempDir dir;
  write(dir / "model.safetensors", {{"a", whole[0]}});
  HuggingFaceFacts facts;
  facts.parameters = {{"w", "w"}};
  facts.files["w"] = {cut_of("a", whole, whole[0])};
  const HuggingFaceWeights weights(dir.path());
  expect_error(ExitCode::kBadInput, {"'w' in pieces that do not make up its shape [3, 4]"}, [&] {
    weights.locate(facts, "w", {3, 4});
  });
}
