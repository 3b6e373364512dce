#include "runtime/model/torchscript/file/model_file.hpp"

#include <ATen/ATen.h>
#include <caffe2/serialize/inline_container.h>
#include <torch/script.h>

#include <catch2/catch.hpp>
#include <fstream>

#include "base/error.hpp"
#include "support/temp_dir.hpp"

using namespace dslaunch;
using dslaunch::runtime::model::file::load_mapped_module;

namespace {

std::string saved_linear(const test::TempDir& folder, int64_t width = 300) {
  torch::jit::Module net("Net");
  net.register_parameter("weight", at::randn({width, width}).requires_grad_(true), false);
  net.register_buffer("count", at::arange(5));
  net.define("def forward(self, x):\n    return torch.matmul(x, self.weight)\n");
  net.save(folder / "net.pt");
  return folder / "net.pt";
}

ExitCode code_of(const std::string& path, const std::string& word) {
  try {
    load_mapped_module(path);
  } catch (const Error& error) {
    INFO(error.what());
    CHECK_THAT(error.what(), Catch::Contains(word));
    return error.code();
  }
  return ExitCode::kSuccess;
}

// A model with a tensor of 37 numbers among the constants of its code, and one of 41 in a list.
std::string saved_with_hidden_tensors(const test::TempDir& folder) {
  torch::jit::Module net("Hidden");
  c10::List<at::Tensor> kept;
  kept.push_back(at::ones({41}));
  net.register_attribute("kept", c10::ListType::ofTensors(), kept);
  net.define("def forward(self, x):\n    return x + self.kept[0].sum()\n");
  const auto graph = net.get_method("forward").graph();
  torch::jit::WithInsertPoint at_end(graph->return_node());
  auto* constant = graph->insertConstant(at::ones({37}));
  auto* sum = graph->insert(c10::aten::add, {graph->outputs().at(0), constant});
  graph->eraseOutput(0);
  graph->registerOutput(sum);
  net.save(folder / "hidden.pt");
  return folder / "hidden.pt";
}

// The archive again, with `before` in one of its pickles replaced by `after`.
void write_patched(const std::string& path, const std::string& out, const std::string& record,
                   const std::string& before, const std::string& after) {
  caffe2::serialize::PyTorchStreamReader reader(path);
  caffe2::serialize::PyTorchStreamWriter writer(out);
  for (const auto& name : reader.getAllRecords()) {
    if (name == "version" || name.rfind(".data/", 0) == 0) continue;  // the writer's own
    auto [bytes, size] = reader.getRecord(name);
    std::string text(static_cast<const char*>(bytes.get()), size);
    if (name == record) {
      const size_t at = text.find(before);
      REQUIRE(at != std::string::npos);
      text.replace(at, before.size(), after);
    }
    writer.writeRecord(name, text.data(), text.size());
  }
  writer.writeEndOfFile();
}

}  // namespace

TEST_CASE("a tensor that claims more than its record holds is damage, wherever the model keeps it",
          "[runtime][model_file]") {
  test::TempDir folder;
  const auto path = saved_with_hidden_tensors(folder);
  CHECK(code_of(path, "") == ExitCode::kSuccess);
  const std::string millions("J\x00\x5a\x62\x02", 5);
  const auto [record, count] =
      GENERATE(table<std::string, std::string>({{"constants.pkl", "K\x25"}, {"data.pkl", "K\x29"}}));
  INFO(record);
  write_patched(path, folder / "shape.pt", record, "(" + count + "t", "(" + millions + "t");
  CHECK(code_of(folder / "shape.pt", "reaches past its record") == ExitCode::kBadInput);
  write_patched(path, folder / "storage.pt", record, count + "tQ", millions + "tQ");
  CHECK(code_of(folder / "storage.pt", "reaches past its record") == ExitCode::kBadInput);
  write_patched(path, folder / "stride.pt", record, "(K\x01t", "(" + millions + "t");
  CHECK(code_of(folder / "stride.pt", "reaches past its record") == ExitCode::kBadInput);
}

TEST_CASE("the parts of a sparse tensor stay inside their records too", "[runtime][model_file]") {
  test::TempDir folder;
  torch::jit::Module net("Sparse");
  c10::List<at::Tensor> kept;
  kept.push_back(at::eye(41).to_sparse_csr());
  net.register_attribute("kept", c10::ListType::ofTensors(), kept);
  net.define("def forward(self, x):\n    return x * 2\n");
  net.save(folder / "sparse.pt");
  CHECK(code_of(folder / "sparse.pt", "") == ExitCode::kSuccess);
  const std::string millions("J\x00\x5a\x62\x02", 5);
  write_patched(folder / "sparse.pt", folder / "storage.pt", "data.pkl", "K\x29tQ", millions + "tQ");
  CHECK(code_of(folder / "storage.pt", "reaches past its record") == ExitCode::kBadInput);
}

TEST_CASE("tensors without dense values are refused by name", "[runtime][model_file]") {
  test::TempDir folder;
  const auto saved_with = [&](const at::Tensor& buffer) {
    torch::jit::Module net("Net");
    net.register_buffer("held", buffer);
    net.define("def forward(self, x):\n    return x * 2\n");
    net.save(folder / "net.pt");
    return folder / "net.pt";
  };
  CHECK(code_of(saved_with(at::eye(3).to_sparse()),
                "has 'held', which is Sparse; store its indices and values as dense buffers") == ExitCode::kBadInput);
  CHECK(code_of(saved_with(at::empty({3}, at::kMeta)), "has no values: 'held'") == ExitCode::kBadInput);
}

TEST_CASE("quantized and sparse tensors in a list are inside their records", "[runtime][model_file]") {
  test::TempDir folder;
  torch::jit::Module net("Net");
  c10::List<at::Tensor> kept;
  kept.push_back(at::quantize_per_tensor(at::ones({5}), 0.5, 0, at::kQInt8));
  kept.push_back(at::quantize_per_channel(at::ones({2, 5}), at::ones({2}), at::zeros({2}, at::kLong), 0, at::kQInt8));
  kept.push_back(at::eye(4).to_sparse());
  net.register_attribute("kept", c10::ListType::ofTensors(), kept);
  net.define("def forward(self, x):\n    return x * 2\n");
  net.save(folder / "net.pt");
  const auto loaded = load_mapped_module(folder / "net.pt").attr("kept").toTensorVector();
  REQUIRE(loaded.size() == 3);
  CHECK(at::equal(loaded[1].dequantize(), at::ones({2, 5})));
  CHECK(at::equal(loaded[2].to_dense(), at::eye(4)));
}

TEST_CASE("code that cannot be read is reported with its line, or with what the file was made for",
          "[runtime][model_file]") {
  test::TempDir folder;
  const auto path = saved_linear(folder, 3);
  const auto with_code = [&](const std::string& before, const std::string& after) {
    write_patched(path, folder / "other.pt", "code/__torch__.py", before, after);
    return folder / "other.pt";
  };
  CHECK(code_of(with_code("return", "retturn 1"), "cannot be read as TorchScript") == ExitCode::kBadInput);
  CHECK(code_of(with_code("return", "x = ops.quantized.add(\n    return"), "is quantized") == ExitCode::kBadInput);
}

TEST_CASE("a tensor that the model's code makes while it is loaded needs no record", "[runtime][model_file]") {
  test::TempDir folder;
  torch::jit::Module net("Made");
  net.register_attribute("kept", c10::TensorType::get(), at::zeros({1}));
  net.define("def forward(self, x):\n    return x * self.kept\n");
  net.define("def __getstate__(self) -> int:\n    return 5\n");
  net.define("def __setstate__(self, size: int) -> None:\n    self.kept = torch.ones([size])\n");
  net.save(folder / "made.pt");
  CHECK(load_mapped_module(folder / "made.pt").attr("kept").toTensor().numel() == 5);
}

TEST_CASE("a mapped model holds the tensors that torch.jit.load reads", "[runtime][model_file]") {
  test::TempDir folder;
  const auto path = saved_linear(folder);
  auto mapped = load_mapped_module(path), loaded = torch::jit::load(path);
  CHECK(at::equal(mapped.attr("weight").toTensor(), loaded.attr("weight").toTensor()));
  CHECK(at::equal(mapped.attr("count").toTensor(), loaded.attr("count").toTensor()));
  CHECK(mapped.attr("weight").toTensor().requires_grad());
}

TEST_CASE("reading a large model takes no memory of the process's own: ranks share the page cache",
          "[runtime][model_file]") {
  auto own_pages_kib = [] {
    std::ifstream status("/proc/self/status");
    for (std::string line; std::getline(status, line);) {
      if (line.rfind("RssAnon:", 0) == 0) return std::stol(line.substr(8));
    }
    return 0L;
  };
  test::TempDir folder;
  torch::jit::Module net("Net");
  net.register_parameter("weight", at::zeros({4096, 4096}), false);  // 64 MiB
  net.define("def forward(self, x):\n    return torch.matmul(x, self.weight)\n");
  net.save(folder / "large.pt");
  const long before = own_pages_kib();
  auto mapped = load_mapped_module(folder / "large.pt");
  CHECK(mapped.attr("weight").toTensor().sum().item<double>() == 0.0);  // every page is touched
  CHECK(own_pages_kib() - before < 8 * 1024);
}

TEST_CASE("writing to a mapped tensor leaves the file as it is", "[runtime][model_file]") {
  test::TempDir folder;
  const auto path = saved_linear(folder);
  const auto before = test::read_file(path);
  load_mapped_module(path).attr("count").toTensor().fill_(9);
  CHECK(test::read_file(path) == before);
}

TEST_CASE("files that are not TorchScript are refused with what they are", "[runtime][model_file]") {
  test::TempDir folder;
  const auto whole = test::read_file(saved_linear(folder));
  CHECK(code_of(folder / "none.pt", "No such file") == ExitCode::kNoInput);
  CHECK(code_of(folder.write("empty.pt", ""), "empty") == ExitCode::kBadInput);
  CHECK(code_of(folder.write("text.pt", "hello, world"), "not TorchScript") == ExitCode::kBadInput);
  CHECK(code_of(folder.write("train.py", "import torch"), "dslaunch exec -- python") == ExitCode::kBadInput);
  folder.write("cut.pt", whole.substr(0, whole.size() / 2));
  CHECK(code_of(folder / "cut.pt", "truncated") == ExitCode::kBadInput);
  folder.write("zip.pt", std::string("PK\x05\x06") + std::string(18, '\0'));
  CHECK(code_of(folder / "zip.pt", "not TorchScript") == ExitCode::kBadInput);
}

TEST_CASE("compressed records are bounded before LibTorch unpacks them, and tensors must not be compressed",
          "[runtime][model_file]") {
  test::TempDir folder;
  const auto write = [&](const std::string& record, size_t size) {
    caffe2::serialize::PyTorchStreamWriter writer(folder / "packed.pt");
    for (const char* name : {"constants.pkl", "data.pkl", "code/net.py"}) writer.writeRecord(name, "x", 1);
    const std::string zeros(size, '\0');
    writer.writeRecord(record, zeros.data(), zeros.size(), /*compress=*/true);
    writer.writeEndOfFile();
  };
  write("data/0", 1000);
  CHECK(code_of(folder / "packed.pt", "its tensor record 'packed/data/0' is compressed") == ExitCode::kBadInput);
  write("code/bomb.py", size_t{300} << 20);  // 0.3 MB in the file
  CHECK(code_of(folder / "packed.pt",
                "has compressed records of more than 0.25 GiB (record 'packed/code/bomb.py' "
                "claims 0.29 GiB)") == ExitCode::kBadInput);
}

TEST_CASE("models that nest so deeply that LibTorch crashes are refused", "[runtime][model_file]") {
  test::TempDir folder;
  const auto path = saved_with_hidden_tensors(folder);
  const auto patched = [&](const char* record, const std::string& before, const std::string& after) {
    write_patched(path, folder / "deep.pt", record, before, after);
    return folder / "deep.pt";
  };
  const size_t count = 200'000;
  const std::string lists = std::string(count, ']') + std::string(count - 1, 'a');
  CHECK(code_of(patched("data.pkl", "ctorch.jit._pickle\nbuild_tensorlist",
                        "N" + lists + "ctorch.jit._pickle\nbuild_tensorlist"),
                "data.pkl' nests values more than 1000 levels deep") == ExitCode::kBadInput);
  CHECK(code_of(patched("code/__torch__.py", "return ", "return " + std::string(50'000, '-')),
                "__torch__.py' nests blocks and expressions more than 500 levels deep in line") == ExitCode::kBadInput);
}

#ifndef __SANITIZE_ADDRESS__  // LibTorch asks for as much memory as a damaged number says, which ends a program there
TEST_CASE("a damaged archive is refused, never a crash", "[runtime][model_file]") {
  test::TempDir folder;
  const auto whole = test::read_file(saved_linear(folder, 3));
  size_t num_refused = 0;
  for (size_t at = 0; at < whole.size(); at += 5) {
    auto damaged = whole;
    damaged[at] = static_cast<char>(damaged[at] ^ 0x5a);
    folder.write("damaged.pt", damaged);
    INFO("byte " << at << " of " << whole.size());
    try {
      load_mapped_module(folder / "damaged.pt");
      runtime::model::file::refuse_inference_file(folder / "damaged.pt");
    } catch (const UserError& error) {
      num_refused += 1;
      CHECK(error.code() == ExitCode::kBadInput);
    }
  }
  CHECK(num_refused > 50);  // what is in the tensors or between the records goes unnoticed
}
#endif
