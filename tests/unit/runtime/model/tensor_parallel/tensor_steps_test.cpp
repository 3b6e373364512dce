// Steps of a model that tensor ranks share, its blocks recomputed in backward and one of them called twice: the ranks
// issue their collectives in one order, those of backward too, and train what the whole model trains.
#include <ATen/ATen.h>
#include <torch/script.h>

#include <catch2/catch.hpp>

#include "runtime/model/interface/model.hpp"
#include "runtime/model/tensor_parallel/tensor_group.hpp"
#include "runtime/model/torchscript/load_script_model.hpp"
#include "runtime/state/model_metadata.hpp"
#include "runtime/state/unit_parameters.hpp"
#include "support/mesh_threads.hpp"
#include "support/temp_dir.hpp"

using namespace dslaunch;
using namespace dslaunch::runtime;
using model::Model;
using torch::jit::Module;

namespace {

constexpr char kBlock[] = R"(
def forward(self, x):
    h = torch.layer_norm(x, [8], self.norm, None, 1e-5)
    return x + torch.linear(torch.gelu(torch.linear(h, self.up, self.up_bias)), self.down, self.down_bias)
)";

Module make_block() {
  Module block("Block");
  block.register_parameter("norm", at::ones({8}).requires_grad_(), false);
  block.register_parameter("up", (at::randn({24, 8}) * 0.3).requires_grad_(), false);
  block.register_parameter("up_bias", at::randn({24}).requires_grad_(), false);
  block.register_parameter("down", (at::randn({8, 24}) * 0.3).requires_grad_(), false);
  block.register_parameter("down_bias", at::randn({8}).requires_grad_(), false);
  block.define(kBlock);
  return block;
}

std::string save_model(const std::string& path) {
  at::manual_seed(4);
  Module net("Net");
  net.register_module("one", make_block());
  net.register_module("two", make_block());
  net.define(
      "def forward(self, x):\n    return self.one.forward(self.two.forward(self.one.forward(x))).square().mean()\n");
  net.save(path,
           {{kModelMetadataName, R"({"format": 1, "inputs": [{"name": "x", "dtype": "float32", "shape": [5, 8]}]})"}});
  return path;
}

// The parameters that a rank holds, trained by gradient descent.
class HeldParameters : public UnitParameters {
 public:
  explicit HeldParameters(const Model& model) : table_(model.facts.table) {
    for (size_t i = 0; i < table_.parameters.size(); ++i) {
      const auto& slice = table_.parameters[i].slice;
      const at::Tensor whole = model.initial.value(static_cast<int>(i));
      values_.push_back((slice ? model::tensor_parallel::part_of(whole, slice->dim, slice->ranges) : whole).clone());
      gradients_.push_back(at::zeros_like(values_.back()));
    }
  }

  UnitValues acquire(int unit, UnitCall) override {
    UnitValues out;
    for (const int p : parameters_of(unit)) out.parameters.push_back(values_[static_cast<size_t>(p)].variable_data());
    return out;
  }
  void release(int) override {}
  void prepare_backward(int) override {}
  void take_gradients(int unit, std::vector<at::Tensor> gradients) override {
    for (size_t i = 0; i < gradients.size(); ++i) {
      if (gradients[i].defined()) gradients_[static_cast<size_t>(parameters_of(unit)[i])].add_(gradients[i]);
    }
  }
  void update() {
    for (size_t i = 0; i < values_.size(); ++i) values_[i].sub_(gradients_[i], 0.05), gradients_[i].zero_();
  }
  const std::vector<at::Tensor>& values() const { return values_; }

 private:
  const std::vector<int>& parameters_of(int unit) const { return table_.units[static_cast<size_t>(unit)].parameters; }

  const ParameterTable& table_;
  std::vector<at::Tensor> values_, gradients_;  // by parameter
};

struct Trained {
  std::vector<double> losses;
  std::vector<at::Tensor> values;  // by parameter
  ParameterTable table;
};

Trained train(Model& model, int steps, bool sequence_parallel = false) {
  model.runnable->set_recomputation({.partition_activations = !sequence_parallel});
  HeldParameters parameters(model);
  model.runnable->set_unit_parameters(&parameters);
  model.runnable->set_device(at::kCPU, at::kFloat);
  Trained out;
  for (int step = 0; step < steps; ++step) {
    auto generator = at::detail::createCPUGenerator(static_cast<uint64_t>(step));
    const at::Tensor loss = model.runnable->forward({at::randn({3, 5, 8}, generator, at::TensorOptions())}).first;
    loss.backward();
    parameters.update();
    out.losses.push_back(loss.item<double>());
  }
  out.values = parameters.values();
  out.table = model.facts.table;
  return out;
}

void check_steps(int ranks, int steps, bool overlap = false, bool sequence_parallel = false) {
  const test::TempDir folder;
  const std::string path = save_model(folder / "net.pt");
  const auto whole = train(*model::torchscript::load_script_model(path, {"Block"}), steps);
  std::vector<Trained> trained(static_cast<size_t>(ranks));
  test::run_mesh({1, 1, ranks}, [&](const comm::Groups& groups) {
    const int rank = groups.own.tensor;
    const auto loaded = model::torchscript::load_script_model(
        path, {"Block"}, {}, {.size = ranks, .rank = rank, .sequence_parallel = sequence_parallel, .overlap = overlap});
    loaded->runnable->set_tensor_group(*groups.tensor);
    trained[static_cast<size_t>(rank)] = train(*loaded, steps, sequence_parallel);
  });
  for (const auto& rank : trained) {
    CHECK(rank.losses == trained[0].losses);
    CHECK(rank.losses.back() == Approx(whole.losses.back()).epsilon(1e-4));
    for (size_t i = 0; i < whole.values.size(); ++i) {
      INFO(whole.table.parameters[i].name);
      const auto& slice = rank.table.parameters[i].slice;
      CHECK(slice.has_value() == (whole.table.parameters[i].name.find("down_bias") == std::string::npos &&
                                  whole.table.parameters[i].name.find("norm") == std::string::npos));
      const at::Tensor expected =
          slice ? model::tensor_parallel::part_of(whole.values[i], slice->dim, slice->ranges) : whole.values[i];
      CHECK(at::allclose(rank.values[i], expected, 1e-3, 1e-4));
      if (!slice) CHECK(at::equal(rank.values[i], trained[0].values[i]));
    }
  }
}

}  // namespace

TEST_CASE("tensor ranks train recomputed blocks as one rank does", "[tensor][steps]") {
  check_steps(2, 12);
  check_steps(3, 12);
}

TEST_CASE("sums over tensor ranks that overlap the gradients of weights change no number", "[tensor][steps]") {
  check_steps(2, 12, /*overlap=*/true);
}

TEST_CASE("tensor ranks that split positions train as one rank does", "[tensor][steps]") {
  const bool overlap = GENERATE(false, true);
  check_steps(2, 12, overlap, /*sequence_parallel=*/true);  // of five positions
}

TEST_CASE("a thousand steps of tensor ranks with recomputed blocks", "[.][slow][tensor][steps]") {
  check_steps(2, 1000, /*overlap=*/true);
}
