#include "runtime/state/model_metadata.hpp"

#include <torch/script.h>

#include <catch2/catch.hpp>
#include <fstream>

#include "base/error.hpp"
#include "runtime/model/torchscript/file/model_file.hpp"
#include "support/temp_dir.hpp"

using namespace dslaunch;
using namespace dslaunch::runtime;

namespace {

torch::jit::Module some_net() {
  torch::jit::Module net("Net");
  net.register_parameter("weight", at::ones({3}), false);
  net.define("def forward(self, x):\n    return x * self.weight\n");
  return net;
}

std::string saved_with(const test::TempDir& folder, const std::string& record) {
  some_net().save(folder / "net.pt", {{kModelMetadataName, record}});
  return folder / "net.pt";
}

}  // namespace

TEST_CASE("what an exporter recorded is read from the model file", "[runtime][model_metadata]") {
  test::TempDir folder;
  const std::string record =
      R"({"format": 1, "labels": "same", "loss_average": "tokens", "recompute": ["Block"], "hugging_face": {"class": "X"}})";
  const auto found = read_model_metadata(saved_with(folder, record));
  CHECK(found.labels == LabelConvention::kSame);
  CHECK(found.averages_over_labels);
  CHECK(found.recomputes);
  CHECK(found.recomputed_units == std::vector<std::string>{"Block"});
  CHECK(found.text == record);
  const auto bare = read_model_metadata(saved_with(folder, R"({"format": 1})"));
  CHECK(bare.labels == LabelConvention::kNotRecorded);
  CHECK_FALSE((bare.averages_over_labels || bare.recomputes));
  CHECK(read_model_metadata(saved_with(folder, R"({"format": 1, "recompute": []})")).recomputes);
  const auto inputs =
      read_model_metadata(
          saved_with(folder, R"({"format": 1, "inputs": [{"name": "x", "dtype": "int64", "shape": [2, 8]}]})"))
          .inputs;
  REQUIRE(inputs.size() == 1);
  CHECK((inputs[0].name == "x" && inputs[0].dtype == "int64" && inputs[0].shape == std::vector<int64_t>{2, 8}));
}

TEST_CASE("files without a record have no metadata, whatever they are", "[runtime][model_metadata]") {
  test::TempDir folder;
  some_net().save(folder / "plain.pt");
  std::ofstream(folder / "text.pt") << "no zip archive";
  for (const char* name : {"plain.pt", "text.pt", "absent.pt"}) CHECK(read_model_metadata(folder / name).text.empty());
}

TEST_CASE("a damaged record and one of a later exporter are refused", "[runtime][model_metadata]") {
  test::TempDir folder;
  for (const char* record :
       {"", "{", "[1]", R"({"labels": "next"})", R"({"format": "1"})", R"({"format": 1, "labels": "both"})",
        R"({"format": 1, "labels": 3})", R"({"format": 1, "recompute": "Block"})", R"({"format": 1, "recompute": [1]})",
        R"({"format": 1, "inputs": {}})", R"({"format": 1, "inputs": [{"name": "x"}]})",
        R"({"format": 1, "inputs": [{"name": "x", "dtype": "int64", "shape": ["2"]}]})"}) {
    CHECK_THROWS_WITH(read_model_metadata(saved_with(folder, record)), Catch::Contains("damaged metadata"));
  }
  CHECK_THROWS_WITH(read_model_metadata(saved_with(folder, std::string(100'000, '['))), Catch::Contains("damaged"));
  CHECK_THROWS_WITH(read_model_metadata(saved_with(folder, R"({"format": 2})")), Catch::Contains("later tools/export"));
}

TEST_CASE("a skeleton keeps the record", "[runtime][model_metadata]") {
  test::TempDir folder;
  const auto metadata = read_model_metadata(saved_with(folder, R"({"format": 1, "labels": "next"})"));
  model::file::write_skeleton_file(some_net(), metadata, folder / "skeleton.pt");
  CHECK(read_model_metadata(folder / "skeleton.pt").text == metadata.text);
  model::file::write_skeleton_file(some_net(), {}, folder / "skeleton.pt");
  CHECK(read_model_metadata(folder / "skeleton.pt").text.empty());
}
