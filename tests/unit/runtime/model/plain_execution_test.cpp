// A model's numbers do not depend on the thread that runs its graphs: what it forks, and second passes of
// recomputation. In bf16 TorchScript's optimiser would round its derivatives otherwise from the second call on.
#include "runtime/model/torchscript/plain_execution.hpp"

#include <ATen/ATen.h>
#include <torch/script.h>

#include <catch2/catch.hpp>
#include <map>
#include <thread>

#include "runtime/model/torchscript/load_script_model.hpp"
#include "script_fixtures.hpp"
#include "support/initial_parameters.hpp"
#include "support/temp_dir.hpp"

using namespace dslaunch;
using namespace dslaunch::runtime;
using namespace dslaunch::runtime::model;
using namespace dslaunch::runtime::model::torchscript;
using torch::jit::Module;

namespace {

constexpr int kWidth = 16;
Module make_block() {
  Module block("Block");
  block.register_parameter("weight", at::randn({kWidth, kWidth}).to(at::kBFloat16), false);
  block.define("def forward(self, x):\n    return torch.tanh(torch.matmul(x, self.weight))\n");
  return block;
}

std::unique_ptr<Model> load(const test::TempDir& folder, bool forks) {
  torch::manual_seed(3);
  Module net("Net");
  net.register_module("one", make_block());
  net.register_module("two", make_block());
  for (const auto& p : net.named_parameters()) p.value.set_requires_grad(true);
  net.define(R"(
    def forward(self, x):
        x = x + self.one.forward(x)
        return (x + self.two.forward(x)).mean()
  )");
  if (forks) test::fork_first_call(*net.get_method("forward").graph());
  net.save(folder / "net.pt");
  return load_script_model(folder / "net.pt", {});
}

// Keeps the gradients of a step, by name.
class Parameters : public test::InitialParameters {
 public:
  explicit Parameters(Model& model) : InitialParameters(model) { model.runnable->set_unit_parameters(this); }
  void take_gradients(int unit, std::vector<at::Tensor> gradients) override {
    const auto& parameters = parameters_of(unit);
    for (size_t i = 0; i < gradients.size(); ++i) gradients_[name_of(parameters[i])] = gradients[i];
  }
  std::map<std::string, at::Tensor> take() { return std::exchange(gradients_, {}); }

 private:
  std::map<std::string, at::Tensor> gradients_;
};

std::map<std::string, at::Tensor> gradients_of_step(Model& model, Parameters& parameters, bool other_thread) {
  const auto x = at::linspace(-2, 2, 8 * kWidth).view({8, kWidth}).to(at::kBFloat16);
  const auto loss = model.runnable->forward({x}).first;
  if (other_thread) {
    std::thread([&] { loss.backward(); }).join();
  } else {
    loss.backward();
  }
  return parameters.take();
}

void check_equal(const std::map<std::string, at::Tensor>& found, const std::map<std::string, at::Tensor>& expected) {
  REQUIRE(found.size() == 2);
  for (const auto& [name, gradient] : expected) CHECK(at::equal(found.at(name), gradient));
}

}  // namespace

TEST_CASE("what a model forks gives the bits that it gives in turn, in every call",
          "[runtime][model][plain_execution]") {
  test::TempDir folder;
  auto in_turn = load(folder, /*forks=*/false);
  Parameters plain(*in_turn);
  const auto expected = gradients_of_step(*in_turn, plain, false);
  auto forked = load(folder, /*forks=*/true);
  Parameters parameters(*forked);
  for (int step = 0; step < 4; ++step) check_equal(gradients_of_step(*forked, parameters, false), expected);
}

TEST_CASE("a unit's second pass gives the bits of its first on a thread of autograd's",
          "[runtime][model][plain_execution]") {
  test::TempDir folder;
  auto model = load(folder, /*forks=*/false);
  Parameters parameters(*model);
  const auto expected = gradients_of_step(*model, parameters, false);
  model->runnable->set_recomputation({});
  for (int step = 0; step < 4; ++step) {
    check_equal(gradients_of_step(*model, parameters, false), expected);
    check_equal(gradients_of_step(*model, parameters, true), expected);
  }
}
