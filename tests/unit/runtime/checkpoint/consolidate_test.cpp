#include "runtime/checkpoint/consolidate.hpp"

#include <ATen/ops/cat.h>
#include <ATen/ops/zeros.h>
#include <sys/stat.h>
#include <torch/csrc/jit/serialization/import.h>
#include <torch/csrc/jit/serialization/pickle.h>

#include <catch2/catch.hpp>
#include <filesystem>

#include "runtime/checkpoint/checkpoint_paths.hpp"
#include "runtime/checkpoint/weight_stream.hpp"
#include "runtime/state/safetensors_file.hpp"
#include "runtime/state/zip_members.hpp"
#include "saved_example.hpp"
#include "support/expect_error.hpp"
#include "support/memory_store.hpp"
#include "support/temp_dir.hpp"

using namespace dslaunch;
using namespace dslaunch::runtime;
using test::example_values;
using test::expect_error;
using test::TempDir;

namespace {

// The model that test::example_parameters() describes, all weights zero and without storage of their size.
void save_skeleton(const std::string& path) {
  auto unit = std::make_shared<torch::jit::CompilationUnit>();
  auto empty = [](std::vector<int64_t> shape, at::ScalarType dtype) { return at::zeros({1}, dtype).expand(shape); };
  torch::jit::Module inner("__torch__.Inner", unit), model("__torch__.Model", unit);
  inner.register_parameter("tied", empty({3}, at::kBFloat16), false);
  model.register_parameter("w", empty({5, 2}, at::kFloat), false);
  model.register_parameter("f", empty({2}, at::kFloat), false);
  model.register_parameter("head", empty({3}, at::kBFloat16), false);
  model.register_buffer("count", at::zeros({}, at::kLong));
  model.register_module("inner", inner);
  model.define("def forward(self, x):\n    return (x @ self.w.t()).sum() + self.f.sum() + self.count\n");
  model.save(path);
}

void save_checkpoint(const TempDir& dir, bool with_skeleton) {
  test::MemoryStore store;
  CheckpointPart part = test::example_part(3, 0, 1);
  if (with_skeleton) {
    save_skeleton(dir / "skeleton.pt");
    part.skeleton = dir / "skeleton.pt";
  }
  CheckpointWriter writer({dir / "c", 0, 1, 2, false}, store);
  writer.save(part);
}

// torch.load reads such an archive without looking at its checksums; unzip and Python's zipfile do not.
void expect_checksums(const std::string& path) {
  const std::string bytes = test::read_file(path);
  const auto members = read_zip_members({reinterpret_cast<const uint8_t*>(bytes.data()), bytes.size()}, path);
  CHECK(members.size() > 4);
  for (const auto& member : members) {
    INFO(member.name);
    CHECK(matches_crc(member));
  }
}

}  // namespace

TEST_CASE("safetensors hold all weights and buffers in the model's dtypes", "[runtime][checkpoint][consolidate]") {
  TempDir dir;
  save_checkpoint(dir, false);
  consolidate({dir / "c", dir / "out.safetensors"});
  SafetensorsFile file(dir / "out.safetensors");
  REQUIRE(file.entries().size() == 5);
  CHECK(file.tensor(*file.find("w")).equal(example_values(3, 0, 10).view({5, 2})));
  CHECK(file.tensor(*file.find("inner.tied")).equal(example_values(3, 0, 3).to(at::kBFloat16)));
  CHECK(file.tensor(*file.find("head")).equal(file.tensor(*file.find("inner.tied"))));
  CHECK(file.tensor(*file.find("f")).equal(example_values(3, 0, 2)));
  CHECK(file.tensor(*file.find("count")).item<int64_t>() == 3);
  CHECK(file.find("count")->shape.empty());
}

TEST_CASE("the TorchScript file is the model with its trained weights", "[runtime][checkpoint][consolidate]") {
  TempDir dir;
  save_checkpoint(dir, true);
  consolidate({dir / "c/step_00000003", dir / "out.pt"});
  expect_checksums(dir / "out.pt");
  torch::jit::Module model = torch::jit::load(dir / "out.pt");
  CHECK(model.attr("w").toTensor().equal(example_values(3, 0, 10).view({5, 2})));
  CHECK(model.attr("w").toTensor().requires_grad());
  CHECK_FALSE(model.attr("f").toTensor().requires_grad());
  const at::Tensor tied = model.attr("inner").toModule().attr("tied").toTensor();
  CHECK(tied.equal(example_values(3, 0, 3).to(at::kBFloat16)));
  CHECK(tied.is_alias_of(model.attr("head").toTensor()));
  // x = (1, 0): the sum of the first column, 3000 + 3002 + ... + 3008, then f and count.
  const at::Tensor x = at::zeros({1, 2});
  x[0][0] = 1;
  CHECK(model.forward({x}).toTensor().item<float>() == 15020.f + 6001.f + 3.f);
}

TEST_CASE("a state dict is name to tensor", "[runtime][checkpoint][consolidate]") {
  TempDir dir;
  save_checkpoint(dir, false);
  consolidate({dir / "c", dir / "state.pt", true});
  expect_checksums(dir / "state.pt");
  const std::string bytes = test::read_file(dir / "state.pt");
  const auto dict = torch::jit::pickle_load({bytes.begin(), bytes.end()}).toGenericDict();
  CHECK(dict.size() == 5);
  // torch.load(weights_only=True) refuses typed containers.
  CHECK(bytes.find("restore_type_tag") == std::string::npos);
  CHECK(dict.at("head").toTensor().is_alias_of(dict.at("inner.tied").toTensor()));
  CHECK(dict.at("w").toTensor().equal(example_values(3, 0, 10).view({5, 2})));
}

TEST_CASE("several files hold what one would, with an index beside them", "[runtime][checkpoint][consolidate]") {
  TempDir dir;
  save_checkpoint(dir, false);
  // w takes 40 bytes, inner.tied (and head) 6, f 8, count 8.
  const auto files = consolidate({.checkpoint = dir / "c", .out = dir / "m.safetensors", .max_shard_bytes = 24}).files;
  REQUIRE(files.size() == 3);
  CHECK(files[0] == dir / "m-00001-of-00002.safetensors");
  CHECK(files[2] == dir / "m.safetensors.index.json");
  CHECK_FALSE(std::filesystem::exists(dir / "m.safetensors"));
  SafetensorsFile first(files[0]), second(files[1]);
  CHECK(first.entries().size() == 1);
  CHECK(second.entries().size() == 4);
  CHECK(second.tensor(*second.find("head")).equal(example_values(3, 0, 3).to(at::kBFloat16)));
  const std::string index = test::read_file(files[2]);
  CHECK(index.find("\"total_size\": 62") != std::string::npos);
  CHECK(index.find("\"head\": \"m-00002-of-00002.safetensors\"") != std::string::npos);
  CHECK(index.find("\"w\": \"m-00001-of-00002.safetensors\"") != std::string::npos);
  CHECK(consolidate({.checkpoint = dir / "c", .out = dir / "one.safetensors", .max_shard_bytes = 1000}).files.size() ==
        1);
}

TEST_CASE("of a directory of checkpoints the newest intact one is written, however the newest is damaged",
          "[runtime][checkpoint][consolidate]") {
  TempDir dir;
  test::MemoryStore store;
  CheckpointWriter writer({dir / "c", 0, 1, 2, false}, store);
  for (const int step : {2, 3}) writer.save(test::example_part(step, 0, 1));
  const std::string newest = dir / "c/step_00000003";
  const std::string shard = newest + "/" + shard_name(0);
  const ConsolidateOptions options{dir / "c", dir / "out.safetensors"};
  CHECK(consolidate(options).step == 3);

  const bool is_cut = GENERATE(false, true);
  std::string bytes = test::read_file(shard);
  if (is_cut) bytes.resize(bytes.size() - 1);
  if (!is_cut) bytes.back() = static_cast<char>(bytes.back() ^ 1);
  test::write_file(shard, bytes);
  const auto written = consolidate(options);
  CHECK(written.step == 2);
  CHECK(written.checkpoint == dir / "c/step_00000002");
  SafetensorsFile file(dir / "out.safetensors");
  CHECK(file.tensor(*file.find("w")).equal(example_values(2, 0, 10).view({5, 2})));
  expect_error(ExitCode::kBadInput, {newest + "' is damaged"}, [&] { consolidate({newest, dir / "o.safetensors"}); });
  std::filesystem::remove_all(dir / "c/step_00000002");
  expect_error(ExitCode::kBadInput, {newest + "' is damaged"}, [&] { consolidate(options); });
}

TEST_CASE("of several files, those that are in place are named when the next cannot be",
          "[runtime][checkpoint][consolidate]") {
  TempDir dir;
  save_checkpoint(dir, false);
  std::filesystem::create_directories(dir / "m-00002-of-00002.safetensors/of somebody");
  expect_error(ExitCode::kIoError,
               {"m-00002-of-00002.safetensors'", "already in place: " + dir / "m-00001-of-00002.safetensors"},
               [&] { consolidate({.checkpoint = dir / "c", .out = dir / "m.safetensors", .max_shard_bytes = 24}); });
  for (const char* name : {"m-00001-of-00002.safetensors.tmp", "m-00002-of-00002.safetensors.tmp",
                           "m.safetensors.index.json", "m.safetensors.index.json.tmp"}) {
    CHECK_FALSE(std::filesystem::exists(dir / name));
  }
}

TEST_CASE("another dtype and without frozen parameters", "[runtime][checkpoint][consolidate]") {
  TempDir dir;
  save_checkpoint(dir, true);
  consolidate({.checkpoint = dir / "c", .out = dir / "m.safetensors", .exclude_frozen = true, .dtype = at::kHalf});
  SafetensorsFile file(dir / "m.safetensors");
  CHECK(file.find("f") == nullptr);
  CHECK(file.tensor(*file.find("w")).equal(example_values(3, 0, 10).view({5, 2}).to(at::kHalf)));
  CHECK(file.tensor(*file.find("head")).equal(example_values(3, 0, 3).to(at::kHalf)));
  CHECK(file.find("count")->dtype == at::kLong);
  consolidate({.checkpoint = dir / "c", .out = dir / "m.pt", .dtype = at::kBFloat16});
  CHECK(torch::jit::load(dir / "m.pt")
            .attr("w")
            .toTensor()
            .equal(example_values(3, 0, 10).view({5, 2}).to(at::kBFloat16)));
}

TEST_CASE("what cannot be consolidated is said, and nothing is left behind", "[runtime][checkpoint][consolidate]") {
  TempDir dir;
  save_checkpoint(dir, false);
  expect_error(ExitCode::kUsage, {"out.npz", ".safetensors"}, [&] { consolidate({dir / "c", dir / "out.npz"}); });
  expect_error(ExitCode::kUsage, {"--state_dict"}, [&] { consolidate({dir / "c", dir / "o.safetensors", true}); });
  expect_error(ExitCode::kUsage, {"--max_shard_size", "TorchScript"},
               [&] { consolidate({.checkpoint = dir / "c", .out = dir / "o.pt", .max_shard_bytes = 5}); });
  expect_error(ExitCode::kUsage, {"--max_memory", "16 MB"},
               [&] { consolidate({.checkpoint = dir / "c", .out = dir / "o.safetensors", .max_memory_bytes = 5}); });
  expect_error(ExitCode::kBadInput, {"no model.pt", "--state_dict"}, [&] { consolidate({dir / "c", dir / "o.pt"}); });
  expect_error(ExitCode::kNoInput, {"nowhere"}, [&] { consolidate({dir / "nowhere", dir / "o.pt"}); });
  expect_error(ExitCode::kCannotCreate, {"/missing/o.safetensors"}, [&] {
    consolidate({dir / "c", dir / "missing/o.safetensors"});
  });
  expect_error(ExitCode::kCannotCreate, {"/missing/o.pt"}, [&] {
    consolidate({dir / "c", dir / "missing/o.pt", true});
  });
  REQUIRE(::mkfifo((dir / "pipe.pt").c_str(), 0600) == 0);
  expect_error(ExitCode::kCannotCreate, {"/pipe.pt': it is not a regular file"}, [&] {
    consolidate({dir / "c", dir / "pipe.pt", true});
  });
  CHECK(std::filesystem::is_fifo(dir / "pipe.pt"));
  expect_error(ExitCode::kIoError, {"/full.pt.tmp", "No space left"}, [&] {
    std::filesystem::create_symlink("/dev/full", dir / "full.pt.tmp");
    consolidate({dir / "c", dir / "full.pt", true});
  });
  CHECK_FALSE(std::filesystem::exists(dir / "full.pt.tmp"));
  CHECK_FALSE(std::filesystem::exists(dir / "o.pt.tmp"));
  CHECK_FALSE(std::filesystem::exists(dir / "o.pt"));
}

TEST_CASE("weights that are larger than the memory come in parts, the last one shorter",
          "[runtime][checkpoint][consolidate]") {
  TempDir dir;
  save_checkpoint(dir, false);
  CheckpointReader checkpoint(dir / "c");
  for (const uint64_t elements : {1, 3, 5, 9, 10, 11}) {
    WeightStream weights(checkpoint, {.max_memory_bytes = 32 * elements});  // 32 bytes per element of a part
    std::vector<at::Tensor> parts;
    weights.read(*checkpoint.find("w"), [&](const at::Tensor& part) {
      CHECK(static_cast<uint64_t>(part.numel()) <= elements);
      parts.push_back(part.clone());
    });
    CHECK(at::cat(parts).equal(example_values(3, 0, 10)));
    const std::string out = dir / ("m" + std::to_string(elements) + ".safetensors");
    write_safetensors(weights, weights.tensors(), out);
    const SafetensorsFile file(out);
    CHECK(file.tensor(*file.find("w")).equal(example_values(3, 0, 10).view({5, 2})));
    CHECK(file.tensor(*file.find("count")).item<int64_t>() == 3);
  }
}
