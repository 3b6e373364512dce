// Wrong input files: the launcher, which checks before it removes anything for a run, and a rank give the same answer.
#include <sys/stat.h>
#include <torch/csrc/jit/api/module.h>

#include <ATen/ops/ones.h>

#include <catch2/catch.hpp>
#include <filesystem>

#include "base/format.hpp"
#include "launch/plan/input_files.hpp"
#include "runtime/data/sample_source.hpp"
#include "runtime/engine/setup/load_model.hpp"
#include "runtime/engine/setup/training_data.hpp"
#include "runtime/engine/step/loss.hpp"
#include "runtime/state/safetensors_writer.hpp"
#include "support/captured_output.hpp"
#include "support/expect_error.hpp"
#include "support/temp_dir.hpp"
#include "unit/runtime/checkpoint/torch_file_writer.hpp"

using namespace dslaunch;
using test::message_of;

namespace {

const std::string kAdvice = " Save the module itself with torch.jit.script(module).save(PATH), or use tools/export.";

std::string saved_model(const test::TempDir& dir) {
  torch::jit::Module model("__torch__.Net");
  model.register_parameter("w", at::ones({64}), false);
  model.define("def forward(self, x):\n    return (x * self.w).sum()\n");
  model.save(dir / "whole.pt");
  return test::read_file(dir / "whole.pt");
}

// The files of all rows; returns the size of the model that the cut ones are cut from.
size_t make_files(const test::TempDir& dir) {
  const std::string whole = saved_model(dir);
  for (const int percent : {1, 50, 99}) {
    dir.write("cut" + std::to_string(percent) + ".pt",
              whole.substr(0, whole.size() * static_cast<size_t>(percent) / 100));
  }
  dir.write("text.pt", "I am no model\n");
  dir.write("empty.pt", "");
  dir.write("old.pt", "\x80\x02}q.");
  dir.write("data.safetensors", "");
  std::filesystem::create_directory(dir / "folder.pt");
  ::mkfifo((dir / "pipe.npz").c_str(), 0600);
  test::TorchFileWriter weights;
  weights.write(dir / "weights.pt", test::pickled::Dict{{"w", weights.tensor(at::ones({2}))}}.object());
  test::TorchFileWriter::write_records(dir / "archive.pt", {{"readme.txt", "nothing here"}});
  // The records that torch.export.save writes.
  test::TorchFileWriter::write_records(dir / "disguised.pt", {{"models/model.json", "{}"},
                                                              {"data/weights/weight_0", "1234"},
                                                              {"data/sample_inputs/model.pt", ""},
                                                              {"archive_format", "pt2"}});
  return whole.size();
}

struct Slip {
  std::string file;
  ExitCode code;
  std::string answer;  // of a model's file, and of a loss's
};

std::vector<Slip> wrong_models(size_t whole) {
  const auto cut = [&](const std::string& percent) {
    const size_t size = whole * std::stoul(percent) / 100;
    return Slip{"cut" + percent + ".pt", ExitCode::kBadInput,
                fmt::format("model 'DIR/cut{}.pt' is truncated: a zip archive of {} bytes without a central directory; "
                            "copy it again.{}",
                            percent, size, kAdvice)};
  };
  return {
      {"nowhere.pt", ExitCode::kNoInput, "cannot read model 'DIR/nowhere.pt': No such file or directory"},
      {"folder.pt", ExitCode::kNoInput,
       "model 'DIR/folder.pt' is a directory, not a file; name the files in it, or a glob"},
      {"pipe.npz", ExitCode::kNoInput, "model 'DIR/pipe.npz' is a device or pipe, not a file"},
      {"text.pt", ExitCode::kBadInput, "model 'DIR/text.pt' is not TorchScript (no zip archive)." + kAdvice},
      {"empty.pt", ExitCode::kBadInput, "model 'DIR/empty.pt' is empty (0 bytes)"},
      {"old.pt", ExitCode::kBadInput,
       "model 'DIR/old.pt' is a pickle of the old torch.save, not TorchScript." + kAdvice},
      {"archive.pt", ExitCode::kBadInput, "model 'DIR/archive.pt' is a zip archive, but not TorchScript." + kAdvice},
      {"disguised.pt", ExitCode::kBadInput,
       "model 'DIR/disguised.pt' is a torch.export archive (.pt2), not TorchScript." + kAdvice},
      {"weights.pt", ExitCode::kBadInput,
       "model 'DIR/weights.pt' is not TorchScript: it holds tensors or a state-dict of torch.save but no code, so it "
       "cannot be run." +
           kAdvice},
      cut("1"),
      cut("50"),
      cut("99")};
}

}  // namespace

TEST_CASE("a file that is not a model is refused by the launcher and by a rank alike", "[input_slips]") {
  const test::TempDir dir;
  const size_t whole = make_files(dir);
  config::JobConfig config;
  CHECK_NOTHROW(launch::check_model_archive(dir / "whole.pt"));
  CHECK_NOTHROW(runtime::engine::setup::load_model(dir / "whole.pt", config, runtime::device::Device(at::kCPU)));
  for (const auto& [file, code, answer] : wrong_models(whole)) {
    CAPTURE(file);
    const std::string path = dir / file;
    CHECK(message_of(code, dir.path(), [&] { launch::check_model_archive(path); }) == answer);
    CHECK(message_of(code, dir.path(), [&] {
            runtime::engine::setup::load_model(path, config, runtime::device::Device(at::kCPU));
          }) == answer);
    config.loss = path;
    CHECK(message_of(code, dir.path(), [&] { launch::check_named_files(config, dir.path()); }) == answer);
    CHECK(message_of(code, dir.path(), [&] { runtime::engine::step::make_loss(path, at::kCPU); }) == answer);
    config.loss = "";
  }
}

TEST_CASE("data that tools/tokenize converts is refused with its command by the launcher and by a rank alike",
          "[input_slips]") {
  const test::TempDir dir;
  for (const char* name :
       {"chats.jsonl", "web.json.gz", "a.parquet", "book.txt", "photos/cat/1.JPG", "saved/state.json",
        "both/dataset_dict.json", "my data/a.csv", "arrays/a.npz", "arrays/notes.json"}) {
    std::filesystem::create_directories(std::filesystem::path(dir / name).parent_path());
    dir.write(name, "");
  }
  std::filesystem::create_directory(dir / "cifar");
  dir.write("cifar/data_batch_1.bin", std::string(2 * 3073, '\0'));
  dir.write("other.bin", std::string(2 * 3073, '\0'));
  struct Row {
    std::string pattern, path, is, command;
    int64_t seq_len = 0;
  };
  const std::string tokens = " (DIR: of the model's tokenizer; without --tokenizer tokens are bytes)";
  const std::vector<Row> rows{
      {"chats.jsonl", "chats.jsonl", "is a table", "chats.jsonl chats.safetensors --seq 512 --tokenizer DIR"},
      {"chats.jsonl", "chats.jsonl", "is a table", "chats.jsonl chats.safetensors --seq 128 --tokenizer DIR", 128},
      {"web.json.gz", "web.json.gz", "is a table", "web.json.gz web.safetensors --seq 512 --tokenizer DIR"},
      {"*.parquet", "a.parquet", "is a table", "*.parquet train.safetensors --seq 512 --tokenizer DIR"},
      {"book.txt", "book.txt", "is a text", "book.txt book.safetensors --seq 512 --tokenizer DIR"},
      {"book.txt", "book.txt", "is a text", "book.txt book.bin --tokenizer DIR", 64},
      {"my data", "my data", "is a directory of tables", "'my data' 'my data.safetensors' --seq 512 --tokenizer DIR"},
      {"saved", "saved", "is a data set that datasets' save_to_disk wrote",
       "saved saved.safetensors --seq 512 --tokenizer DIR"},
      {"both", "both", "is a data set that datasets' save_to_disk wrote",
       "both/train both.safetensors --seq 512 --tokenizer DIR"},
      {"photos/", "photos/", "is a directory of images", "photos/ photos.safetensors"},
      {"cifar", "cifar", "is a directory of CIFAR's images", "cifar cifar.safetensors"},
      {"cifar/data_batch_1.bin", "cifar/data_batch_1.bin", "has CIFAR's images",
       "cifar/data_batch_1.bin data_batch_1.safetensors"}};
  for (const auto& [pattern, path, is, command, seq_len] : rows) {
    CAPTURE(pattern, seq_len);
    config::JobConfig config;
    config.data.eval = {pattern};
    config.data.seq_len = seq_len;
    const std::string result = command.substr(command.find(' ', command[0] == '\'' ? 4 : 0) + 1);
    const bool is_image = command.find("--tokenizer") == command.npos;
    const std::string made = is_image ? result : result.substr(0, result.find(" --"));
    const std::string answer = fmt::format(
        "data file 'DIR/{}' {}, which a run does not read; convert it once with 'tools/tokenize {}', and give "
        "the run {}{}",
        path, is, command, made, is_image ? "" : tokens);
    CHECK(message_of(ExitCode::kBadInput, dir.path(), [&] { launch::check_named_files(config, dir.path()); }) ==
          answer);
    // A rank's working directory is not that of the test: it gets the whole path, in the command too.
    config.data.eval = {dir / pattern};
    const std::string said =
        message_of(ExitCode::kBadInput, dir.path(), [&] { runtime::open_eval_samples(config.data); });
    CHECK(said.substr(0, said.find(';')) == answer.substr(0, answer.find(';')));
  }
  config::JobConfig config;
  config.data.seq_len = 8;
  config.data.train = {"book.txt"};
  config.data.dtype = "uint8";
  CHECK_NOTHROW(launch::check_named_files(config, dir.path()));
  config.data.dtype = "uint16";
  config.data.format = "tokens";
  CHECK_NOTHROW(launch::check_named_files(config, dir.path()));
  config.data.format = "auto";
  for (const char* name : {"cifar/data_batch_1.bin", "other.bin"}) {
    config.data.train = {name};
    CHECK_NOTHROW(launch::check_named_files(config, dir.path()));
  }
  config.data.train = {"arrays"};
  CHECK(message_of(ExitCode::kNoInput, dir.path(), [&] { launch::check_named_files(config, dir.path()); }) ==
        "data file 'DIR/arrays' is a directory, not a file; name the files in it, or a glob");
}

TEST_CASE("data that cannot be opened is refused by the launcher and by a rank alike", "[input_slips]") {
  const test::TempDir dir;
  make_files(dir);
  const std::vector<Slip> slips{
      {"nowhere.npz", ExitCode::kNoInput, "cannot read data file 'DIR/nowhere.npz': No such file or directory"},
      {"nowhere*.npz", ExitCode::kNoInput, "no data file matches 'DIR/nowhere*.npz'"},
      {"folder.pt", ExitCode::kNoInput,
       "data file 'DIR/folder.pt' is a directory, not a file; name the files in it, or a glob"},
      {"pipe.npz", ExitCode::kNoInput, "data file 'DIR/pipe.npz' is a device or pipe, not a file"}};
  for (const auto& [file, code, answer] : slips) {
    CAPTURE(file);
    config::JobConfig train, eval;
    train.data.train = {dir / file};
    eval.data.eval = {dir / file};
    CHECK(message_of(code, dir.path(), [&] { runtime::open_train_samples(train.data); }) == answer);
    CHECK(message_of(code, dir.path(), [&] { runtime::open_eval_samples(eval.data); }) == answer);
    train.data.train = {dir / "data.safetensors", dir / file};  // one of several
    for (const auto& config : {train, eval}) {
      CHECK(message_of(code, dir.path(), [&] { launch::check_named_files(config, dir.path()); }) == answer);
    }
  }
}

TEST_CASE("arrays without the names of forward's arguments are refused unless named", "[input_slips]") {
  using runtime::engine::setup::open_training_data;
  const test::TempDir dir;
  const auto open = [&](const std::string& first, const std::string& second, std::vector<std::string> inputs) {
    runtime::SafetensorsWriter writer(dir / "data.safetensors",
                                      {{first, at::kFloat, {4, 6}}, {second, at::kFloat, {4, 1}}});
    writer.write(at::ones({4, 6}));
    writer.write(at::ones({4, 1}));
    writer.finish(false);
    config::JobConfig config;
    config.data.train = {dir / "data.safetensors"};
    config.data.inputs = std::move(inputs);
    runtime::model::ModelFacts model;
    model.inputs = {{"x", "target"}, 2};
    open_training_data(model, config, {}, /*rank=*/0, at::kFloat, /*pin=*/false);
  };
  CHECK(
      message_of(ExitCode::kBadInput, dir.path(), [&] { open("a", "b", {}); }) ==
      "which array of the data is which argument of forward is not known: forward takes (x, target), and the data has "
      "'a' Float[6], 'b' Float[1]; name the arrays in forward's order: --inputs a --labels b or --inputs b --labels a "
      "(data.inputs and data.labels in the config)");
  CHECK_NOTHROW(open("a", "b", {"a", "b"}));
  CHECK_NOTHROW(open("x", "target", {}));
}

TEST_CASE("beside steps, an epoch of synthetic samples never comes first", "[input_slips]") {
  config::JobConfig config;
  config.data.synthetic_train = true;
  config.data.synthetic = {{.name = "x", .shape = {6}}};
  config.train.epochs = 1;
  runtime::engine::setup::TrainingData data;
  data.train = runtime::open_train_samples(config.data);
  CHECK(message_of(ExitCode::kBadInput, "", [&] { runtime::engine::setup::count_steps(data, config); }) ==
        "synthetic data is endless, so the run needs a number of steps: --steps N or train.steps");
  config.train.steps = 2;
  CHECK(runtime::engine::setup::count_steps(data, config) == 2);
}
