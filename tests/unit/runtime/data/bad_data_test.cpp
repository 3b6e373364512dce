// Data that a run refuses before its first step, through the calls with which a rank opens its data: the whole answer
// and the exit code.
#include <ATen/ops/zeros.h>

#include <catch2/catch.hpp>
#include <functional>

#include "base/bytes.hpp"
#include "numpy_samples.hpp"
#include "runtime/data/batch_loader.hpp"
#include "runtime/state/safetensors_writer.hpp"
#include "support/expect_error.hpp"
#include "support/temp_dir.hpp"
#include "unit/runtime/checkpoint/torch_file_writer.hpp"

using namespace dslaunch;
using namespace dslaunch::runtime;
using test::message_of;
using test::TempDir;

namespace {

using Tensors = std::vector<std::pair<std::string, at::Tensor>>;

// safetensors in the order given.
std::string saved(const TempDir& dir, const std::string& name, const Tensors& tensors) {
  std::vector<TensorDescription> descriptions;
  for (const auto& [key, tensor] : tensors) descriptions.push_back({key, tensor.scalar_type(), tensor.sizes().vec()});
  SafetensorsWriter writer(dir / name, descriptions);
  for (const auto& description : writer.order()) {
    for (const auto& [key, tensor] : tensors) {
      if (key == description.name) writer.write(tensor);
    }
  }
  writer.finish(false);
  return dir / name;
}

Tensors samples(int64_t num_x, int64_t num_y) {
  return {{"x", at::zeros({num_x, 6})}, {"y", at::zeros({num_y, 1})}};
}

// A run of 2 ranks with batches of 36, of a model with forward(x, y).
struct Run {
  config::Data data;
  ForwardArguments forward{{"x", "y"}, 2, true};
  LoaderOptions options{
      .rank = 0, .data_parallel = 2, .batch = {.train_batch = 36, .micro_batch = 18, .accumulation = 1}};

  Run() {
    data.shuffle = false;
    data.num_workers = 0;
  }
  void read_an_epoch() const {
    const std::shared_ptr<const SampleSource> source = open_train_samples(data);
    const auto selection = select_arrays(source->arrays(), data.inputs, data.labels, forward);
    BatchLoader loader(source, selection, data, options, {});
    for (int64_t step = steps_in_epochs(*source, data, options.batch, 1); step > 0; --step) loader.next();
  }
};

std::string npy_of_zeros() {
  const auto bytes = *from_hex(kNpyX);
  return {bytes.begin(), bytes.end()};
}

std::string archive_with_a_name_twice() {
  // Two entries of one name are made from two names of the same length.
  TempDir dir;
  test::TorchFileWriter::write_records(dir / "a", {{"x.npy", npy_of_zeros()}, {"z.npy", npy_of_zeros()}});
  std::string bytes = test::read_file(dir / "a");
  for (size_t at = 0; (at = bytes.find("z.npy", at)) != bytes.npos;) bytes[at] = 'x';
  return bytes;
}

struct Slip {
  std::string what;
  ExitCode code;
  std::function<void(const TempDir&, Run&)> make;
  std::string answer;
};

std::vector<Slip> slips() {
  const std::string whole = [] {
    const TempDir dir;
    return test::read_file(saved(dir, "whole", samples(72, 72)));
  }();
  const auto file = [](const std::string& name, const std::string& bytes) {
    return [name, bytes](const TempDir& dir, Run& run) { run.data.train = {dir.write(name, bytes)}; };
  };
  const auto tensors = [](const std::string& name, const Tensors& values) {
    return [name, values](const TempDir& dir, Run& run) { run.data.train = {saved(dir, name, values)}; };
  };
  const auto bad = ExitCode::kBadInput;
  return {
      {"missing", ExitCode::kNoInput, [](const TempDir& dir, Run& run) { run.data.train = {dir / "no.safetensors"}; },
       "cannot read data file 'DIR/no.safetensors': No such file or directory"},
      {"text", bad, file("text.safetensors", "not tensors at all"),
       "data file 'DIR/text.safetensors' is not usable: its header claims 8317697111234998126 bytes (the format allows "
       "100000000); this is not a safetensors file"},
      {"truncated", bad, file("cut.safetensors", whole.substr(0, whole.size() - 100)),
       "data file 'DIR/cut.safetensors' is not usable: tensor 'y' ends at byte 2016 of the data, but the file has only "
       "1916; "
       "it is truncated"},
      {"two files concatenated", bad, file("both.safetensors", whole + whole),
       "data file 'DIR/both.safetensors' is not usable: " + std::to_string(whole.size()) +
           " bytes follow the last tensor, which the format does not allow; safetensors files cannot be concatenated"},
      {"a name twice", bad, file("appended.npz", archive_with_a_name_twice()),
       "data file 'DIR/appended.npz' has more than one member 'archive/x.npy'; save it again with numpy.savez(path, "
       "**numpy.load(path)), which keeps the last one"},
      {"torch.save", bad,
       [](const TempDir& dir, Run& run) {
         test::TorchFileWriter writer;
         writer.write(dir / "data.pt", test::pickled::Dict{{"x", writer.tensor(at::zeros({2}))}}.object());
         run.data.train = {dir / "data.pt"};
       },
       "data file 'DIR/data.pt' was written by torch.save, as a Python pickle; save its tensors with "
       "safetensors.torch.save_file, or as arrays with numpy.savez"},
      {"unequal lengths", bad, tensors("uneven.safetensors", samples(72, 71)),
       "data file 'DIR/uneven.safetensors': the arrays differ in their number of samples: 'x' (72, 6), 'y' (71, 1)"},
      {"lengths in two files", bad,
       [](const TempDir& dir, Run& run) {
         const auto [x, y] = std::pair{dir.write("x.npy", npy_of_zeros()), dir / "y.npy"};
         std::string shorter = npy_of_zeros();
         shorter[shorter.find("(3, 2)") + 1] = '2';
         test::write_file(y, shorter);
         run.data.train = {x, y};
       },
       "the arrays differ in their number of samples: 'x' has 3 ('DIR/x.npy'), 'y' has 2 ('DIR/y.npy')"},
      {"too many arrays", bad,
       tensors("three.safetensors", {{"a", at::zeros({72, 6})}, {"b", at::zeros({72, 6})}, {"y", at::zeros({72, 1})}}),
       "the model's forward takes 2 argument(s) (x, y), but the data provides 3 (a, b, y); name the arrays in the "
       "order of "
       "forward with data.inputs and data.labels, or --inputs and --labels; labels go to forward unless a loss takes "
       "them: --loss cross_entropy, --loss mse or --loss FILE"},
      {"a missing array", bad,
       [](const TempDir& dir, Run& run) {
         run.data.train = {saved(dir, "data.safetensors", samples(72, 72))};
         run.data.inputs = {"z"};
       },
       "data.inputs names the array 'z', which the data does not have; it has x, y"},
      {"an array that an option names", bad,
       [](const TempDir& dir, Run& run) {
         run.data.train = {
             saved(dir, "data.safetensors", {{"a", at::zeros({72})}, {"b", at::zeros({72})}, {"c", at::zeros({72})}})};
         run.data.inputs = {"b", "d"};
       },
       "data.inputs names the array 'd', which the data does not have; it has a, b, c"},
      {"fewer samples than a batch", bad, tensors("few.safetensors", samples(7, 7)),
       "the data has 7 sample(s), fewer than one batch of 36 (micro batch 18 x accumulation 1 x 2 data rank(s)); make "
       "train_batch_size smaller, or set data.drop_last to false to repeat samples"},
      {"no samples", bad, tensors("none.safetensors", samples(0, 0)), "the data has no samples (array 'x' has 0 rows)"},
      {"a label out of range", bad,
       [](const TempDir& dir, Run& run) {
         at::Tensor labels = at::zeros({72}, at::kLong);
         labels[41] = 17;
         labels[5] = -100;
         run.data.train = {saved(dir, "classes.safetensors", {{"x", at::zeros({72, 6})}, {"label", labels}})};
         run.options.assembly.limits = {{"label", {{5, -100, {}}}}};
       },
       "array 'label' of the data, sample 41: the value 17 is out of range: the model accepts 0 to 4 (and -100 for "
       "labels to "
       "ignore); file: 'DIR/classes.safetensors'"},
      {"a token out of range", bad,
       [](const TempDir& dir, Run& run) {
         at::Tensor ids = at::zeros({72, 8}, at::kLong);
         ids[50][3] = 64;
         run.data.train = {
             saved(dir, "tokens.safetensors", {{"input_ids", ids}, {"labels", at::zeros({72, 8}, at::kLong)}})};
         run.options.assembly.limits = {{"input_ids", {{64, {}, {}}}}};
       },
       "array 'input_ids' of the data, sample 50, element 3: the value 64 is out of range: the model accepts 0 to 63; "
       "file: "
       "'DIR/tokens.safetensors'"},
      {"epochs of synthetic samples", bad,
       [](const TempDir&, Run& run) {
         run.data.synthetic_train = true;
         run.data.synthetic = {{.name = "x", .shape = {6}}, {.name = "y", .shape = {1}}};
       },
       "synthetic data is endless, so the run needs a number of steps: --steps N or train.steps"},
      {"a synthetic sample larger than any memory", bad,
       [](const TempDir&, Run& run) {
         run.data.synthetic_train = true;
         run.data.synthetic = {{.name = "x", .shape = {int64_t{1} << 32, int64_t{1} << 32, 16}},
                               {.name = "y", .shape = {1}}};
       },
       "data.synthetic.x: one sample of shape [4294967296, 4294967296, 16] is larger than any memory"},
  };
}

}  // namespace

TEST_CASE("data with a slip is refused with the file, the array and the numbers", "[runtime][data][bad_data]") {
  for (const Slip& slip : slips()) {
    CAPTURE(slip.what);
    const TempDir dir;
    Run run;
    slip.make(dir, run);
    CHECK(message_of(slip.code, dir.path(), [&] { run.read_an_epoch(); }) == slip.answer);
  }
}

TEST_CASE("the same run with good data reads an epoch", "[runtime][data][bad_data]") {
  const TempDir dir;
  Run run;
  run.data.train = {saved(dir, "good.safetensors", samples(72, 72))};
  CHECK_NOTHROW(run.read_an_epoch());
}

TEST_CASE("arrays are chosen by name among more, in any order of the file", "[runtime][data][bad_data]") {
  const TempDir dir;
  Run run;
  run.data.train = {saved(dir, "named.safetensors",
                          {{"a", at::zeros({72, 1})}, {"b", at::zeros({72, 6}) + 1}, {"c", at::zeros({72})}})};
  const auto chosen = [&](std::vector<std::string> inputs, std::vector<std::string> labels) {
    run.data.inputs = std::move(inputs);
    run.data.labels = std::move(labels);
    const std::shared_ptr<const SampleSource> source = open_train_samples(run.data);
    const auto selection = select_arrays(source->arrays(), run.data.inputs, run.data.labels, run.forward);
    return BatchLoader(source, selection, run.data, run.options, {}).next();
  };
  const Batch split = chosen({"b"}, {"a"}), inputs = chosen({"b", "a"}, {});
  CHECK(split.inputs.at(0).sizes() == at::IntArrayRef({18, 6}));
  CHECK(split.labels.at(0).sizes() == at::IntArrayRef({18, 1}));
  CHECK(split.inputs[0].eq(1).all().item<bool>());
  CHECK(inputs.inputs.at(0).equal(split.inputs[0]));
  CHECK(inputs.inputs.at(1).equal(split.labels[0]));
}
