// Directories of Hugging Face, out of checkpoints (docs/huggingface.md). What transformers and peft make of them is the
// part of tests/oracle/test_hugging_face_journeys.py.
#include <ATen/ops/matmul.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/zeros.h>
#include <torch/csrc/jit/api/module.h>

#include <catch2/catch.hpp>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "runtime/checkpoint/hugging_face/write_model.hpp"
#include "runtime/state/safetensors_file.hpp"
#include "saved_example.hpp"
#include "support/expect_error.hpp"
#include "support/memory_store.hpp"
#include "support/set_env.hpp"
#include "support/temp_dir.hpp"

using namespace dslaunch;
using namespace dslaunch::runtime;
using Json = nlohmann::json;
using test::example_values;
using test::expect_error;
using test::TempDir;

namespace {

Json record_of(const Json& parameters) {
  return {{"format", 1},
          {"hugging_face",
           {{"source", {{"kind", "architecture"}, {"name", "tiny"}, {"revision", nullptr}}},
            {"class", "TinyModel"},
            {"config", {{"dtype", "bfloat16"}, {"text_config", {{"dtype", "bfloat16"}}}, {"eps", 1e-6}}},
            {"generation_config", {{"eos_token_id", 2}}},
            {"parameters", parameters},
            {"tied", Json::object()},
            {"files", Json::object()},
            {"unmapped", Json::array()}}}};
}

void save(const TempDir& dir, const Json& record, CheckpointPart part) {
  torch::jit::Module model("__torch__.Model", std::make_shared<torch::jit::CompilationUnit>());
  model.define("def forward(self, x):\n    return x\n");
  model.save(dir / "skeleton.pt", {{"dslaunch.json", record.dump()}});
  part.skeleton = dir / "skeleton.pt";
  test::MemoryStore store;
  CheckpointWriter({dir / "c", 0, 1, 2, false}, store).save(part);
}

// "head" is the other name of "inner.tied".
const Json kExampleNames{{"w", "x.w"}, {"head", "x.head"}, {"f", "x.f"}, {"count", "x.count"}};

Json read_json(const std::string& path) {
  return Json::parse(test::read_file(path));
}

}  // namespace

TEST_CASE("a directory has the names that the export recorded, in fp32", "[runtime][checkpoint][hugging_face]") {
  TempDir dir;
  save(dir, record_of(kExampleNames), test::example_part(3, 0, 1));
  const auto written = hugging_face::write_model({.checkpoint = dir / "c", .out = dir / "out"}).files;
  CHECK(written == std::vector<std::string>{dir / "out/generation_config.json", dir / "out/model.safetensors",
                                            dir / "out/config.json"});
  const SafetensorsFile file(dir / "out/model.safetensors");
  REQUIRE(file.entries().size() == 4);
  CHECK(file.metadata().at("format") == "pt");
  CHECK(file.tensor(*file.find("x.w")).equal(example_values(3, 0, 10).view({5, 2})));
  CHECK(file.tensor(*file.find("x.head")).equal(example_values(3, 0, 3)));
  CHECK(file.tensor(*file.find("x.f")).equal(example_values(3, 0, 2)));
  CHECK(file.tensor(*file.find("x.count")).item<int64_t>() == 3);
  const auto config = read_json(dir / "out/config.json");
  CHECK(config == Json{{"dtype", "float32"}, {"text_config", {{"dtype", "float32"}}}, {"eps", 1e-6}});
  CHECK(read_json(dir / "out/generation_config.json") == Json{{"eos_token_id", 2}});
}

TEST_CASE("parts of a tensor are files' tensors, also where they are not back to back",
          "[runtime][checkpoint][hugging_face]") {
  TempDir dir;
  auto record = record_of(kExampleNames);
  record["hugging_face"]["files"]["x.w"] = {
      {{"name", "second_row"}, {"offset", 2}, {"shape", {1, 2}}, {"strides", {2, 1}}},
      {{"name", "transposed"}, {"offset", 4}, {"shape", {2, 3}}, {"strides", {1, 2}}}};
  save(dir, record, test::example_part(3, 0, 1));
  hugging_face::write_model({.checkpoint = dir / "c", .out = dir / "out", .dtype = at::kDouble});
  const SafetensorsFile file(dir / "out/model.safetensors");
  CHECK(file.find("x.w") == nullptr);
  CHECK(file.tensor(*file.find("second_row")).equal(example_values(3, 2, 4).view({1, 2}).to(at::kDouble)));
  CHECK(file.tensor(*file.find("transposed")).equal(example_values(3, 4, 10).view({3, 2}).t().to(at::kDouble)));
}

TEST_CASE("several files have an index, and the config appears last", "[runtime][checkpoint][hugging_face]") {
  TempDir dir;
  save(dir, record_of(kExampleNames), test::example_part(3, 0, 1));
  std::filesystem::create_directories(dir / "out");  // an empty directory will do
  const auto written =
      hugging_face::write_model({.checkpoint = dir / "c", .out = dir / "out", .max_shard_bytes = 40}).files;
  CHECK(written.back() == dir / "out/config.json");
  const auto index = read_json(dir / "out/model.safetensors.index.json");
  CHECK(index["metadata"]["total_size"] == 40 + 12 + 8 + 8);
  for (const auto& [name, path] : index["weight_map"].items()) {
    CHECK(SafetensorsFile(dir / "out/" + path.get<std::string>()).find(name) != nullptr);
  }
  CHECK(index["weight_map"].size() == 4);
  CHECK_FALSE(std::filesystem::exists(dir / "out/model.safetensors"));
}

TEST_CASE("adapters are added to weights that are larger than the memory for them",
          "[runtime][checkpoint][hugging_face]") {
  const bool transposed = GENERATE(false, true);
  const int64_t out = 1201, in = 999;
  const at::Tensor a = at::randn({4, in}), b = at::randn({out, 4});
  const at::Tensor weight = transposed ? at::randn({in, out}) : at::randn({out, in});
  const auto whole = [](const char* name, const at::Tensor& value) {
    return StatePiece{name, "master", 0, value.reshape({-1})};
  };
  CheckpointPart part;
  part.pieces.push_back(whole("w", weight));
  part.pieces.push_back(whole("a", a));
  part.pieces.push_back(whole("b", b));
  part.metadata.parameters = {{.name = "w", .shape = weight.sizes().vec()},
                              {.name = "a", .shape = a.sizes().vec()},
                              {.name = "b", .shape = b.sizes().vec()}};
  auto record = record_of({{"w", "x.w"}});
  record["hugging_face"]["adapter"] = {
      {"config", {{"peft_type", "LORA"}}},
      {"parameters", {{"a", "base_model.model.a"}, {"b", "base_model.model.b"}}},
      {"merges", {{"x.w", {{"a", "a"}, {"b", "b"}, {"scaling", 0.5}, {"transposed", transposed}}}}},
      {"not_mergeable", Json::array()}};
  TempDir dir;
  save(dir, record, part);
  hugging_face::write_model(
      {.checkpoint = dir / "c", .out = dir / "merged", .merge_lora = true, .max_memory_bytes = 16'000'000});
  const at::Tensor delta = at::matmul(b, a) * 0.5;
  const SafetensorsFile merged(dir / "merged/model.safetensors");
  CHECK(merged.entries().size() == 1);
  CHECK(merged.tensor(*merged.find("x.w")).allclose(weight + (transposed ? delta.t() : delta), 1e-5, 1e-6));

  hugging_face::write_model({.checkpoint = dir / "c", .out = dir / "apart"});
  const SafetensorsFile apart(dir / "apart/adapter_model.safetensors");
  CHECK(apart.entries().size() == 2);
  CHECK(apart.tensor(*apart.find("base_model.model.a")).equal(a));
  CHECK(read_json(dir / "apart/adapter_config.json") == Json{{"peft_type", "LORA"}, {"inference_mode", true}});

  record["hugging_face"]["adapter"]["merges"]["x.w"]["transposed"] = !transposed;
  TempDir other;
  save(other, record, part);
  expect_error(ExitCode::kBadInput, {"'x.w'", "do not fit"}, [&] {
    hugging_face::write_model({.checkpoint = other / "c", .out = other / "out", .merge_lora = true});
  });
  record["hugging_face"]["adapter"]["not_mergeable"] = {"x.embedding"};
  TempDir unmergeable;
  save(unmergeable, record, part);
  expect_error(ExitCode::kBadInput, {"--merge_lora cannot merge", "'x.embedding' is not plain LoRA"}, [&] {
    hugging_face::write_model({.checkpoint = unmergeable / "c", .out = unmergeable / "out", .merge_lora = true});
  });
}

TEST_CASE(
    "links of the source are followed inside it and inside the hub's cache, and copies are as private as the file",
    "[runtime][checkpoint][hugging_face]") {
  namespace fs = std::filesystem;
  TempDir dir;
  save(dir, record_of(kExampleNames), test::example_part(3, 0, 1));
  const test::SetEnv cache("HF_HUB_CACHE", dir / "hub");
  const std::string model = dir / "other/models--a--b", snapshot = model + "/snapshots/1";
  for (const auto& path : {dir / "hub/blobs", model + "/blobs", snapshot + "/more", dir / "plain"}) {
    fs::create_directories(path);
  }
  dir.write("private", "key");
  for (const auto& path : {dir / "hub/blobs/v", model + "/blobs/t", snapshot + "/more/m"}) {
    test::write_file(path, path.substr(path.size() - 1));
  }
  fs::permissions(model + "/blobs/t", fs::perms::owner_read | fs::perms::owner_write);
  fs::create_symlink("../../blobs/t", snapshot + "/tokenizer.json");
  fs::create_symlink("more/m", snapshot + "/merges.txt");
  fs::create_symlink(dir / "hub/blobs/v", snapshot + "/vocab.json");
  fs::create_directory_symlink(snapshot, dir / "latest");
  const auto copy_from = [&](const std::string& source) {
    return hugging_face::write_model({.checkpoint = dir / "c", .out = dir / "out", .source = source}).files;
  };
  for (const auto& source : {snapshot, dir / "latest"}) {
    CHECK(copy_from(source).size() == 6);
    CHECK(test::read_file(dir / "out/tokenizer.json") == "t");
    CHECK(test::read_file(dir / "out/merges.txt") == "m");
    CHECK(test::read_file(dir / "out/vocab.json") == "v");
    CHECK(fs::status(dir / "out/tokenizer.json").permissions() == (fs::perms::owner_read | fs::perms::owner_write));
    CHECK_FALSE(fs::is_symlink(dir / "out/tokenizer.json"));
    fs::remove_all(dir / "out");
  }

  const auto refuses = [&](const char* name, const std::string& target, ExitCode code, const std::string& why) {
    fs::create_symlink(target, dir / "plain/" + name);
    expect_error(code, {"cannot copy '" + (dir / "plain/") + name + "': it is a symbolic link to '", why},
                 [&] { copy_from(dir / "plain"); });
    CHECK_FALSE(fs::exists(dir / "out"));
    fs::remove(dir / "plain/" + name);
  };
  fs::create_symlink(dir / "private", dir / "hub/blobs/link");
  refuses("tokenizer.json", dir / "private", ExitCode::kBadInput, dir / "private', outside of that directory");
  refuses("qwen.tiktoken", "../private", ExitCode::kBadInput, "outside of that directory and of the hub's cache");
  refuses("generation_config.json", dir / "hub/blobs/link", ExitCode::kBadInput, dir / "private', outside of");
  refuses("vocab.json", dir / "hub/blobs/gone", ExitCode::kNoInput, "gone', which cannot be read: No such file");
}

TEST_CASE("damaged metadata of Hugging Face is refused", "[runtime][checkpoint][hugging_face]") {
  for (const char* key : {"source", "config", "parameters", "tied", "files", "unmapped"}) {
    INFO(key);
    TempDir dir;
    auto record = record_of(kExampleNames);
    record["hugging_face"][key] = 3;
    save(dir, record, test::example_part(3, 0, 1));
    expect_error(ExitCode::kBadInput, {"damaged metadata"},
                 [&] { hugging_face::write_model({.checkpoint = dir / "c", .out = dir / "out"}); });
    CHECK_FALSE(std::filesystem::exists(dir / "out"));
  }
  TempDir dir;
  auto record = record_of(kExampleNames);
  record["hugging_face"]["files"]["x.w"] = {{{"name", "p"}, {"offset", -1}, {"shape", {1}}, {"strides", {1}}}};
  save(dir, record, test::example_part(3, 0, 1));
  expect_error(ExitCode::kBadInput, {"damaged metadata"},
               [&] { hugging_face::write_model({.checkpoint = dir / "c", .out = dir / "out"}); });
}
