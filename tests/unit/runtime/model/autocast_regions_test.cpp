// `with torch.autocast(...)` in a scripted model switches dispatch as eager PyTorch does, and only inside.
#include "runtime/model/rewrites/autocast_regions.hpp"

#include <ATen/ATen.h>
#include <ATen/autocast_mode.h>

#include <catch2/catch.hpp>

#include "runtime/model/torchscript/file/model_file.hpp"
#include "runtime/model/torchscript/plain_execution.hpp"
#include "script_fixtures.hpp"

using namespace dslaunch;
using namespace dslaunch::runtime;
using namespace dslaunch::runtime::model;
using namespace dslaunch::runtime::model::rewrites;
using torch::jit::Module;

namespace {

constexpr char kAutocast[] = R"(
class autocast:
  _enabled : bool
  device : str
  fast_dtype : int
  def __init__(self: __torch__.torch.amp.autocast_mode.autocast, enabled: bool, dtype: int) -> NoneType:
    self._enabled = enabled
    self.device = "cpu"
    self.fast_dtype = dtype
    return None
  def __enter__(self: __torch__.torch.amp.autocast_mode.autocast) -> NoneType:
    return None
  def __exit__(self: __torch__.torch.amp.autocast_mode.autocast, kind: Any, value: Any, traceback: Any) -> NoneType:
    return None
class other:
  count : int
  def __init__(self: __torch__.torch.amp.autocast_mode.other) -> NoneType:
    self.count = 0
    return None
  def __enter__(self: __torch__.torch.amp.autocast_mode.other) -> NoneType:
    return None
  def __exit__(self: __torch__.torch.amp.autocast_mode.other, kind: Any, value: Any, traceback: Any) -> NoneType:
    return None
)";

// A net, from a file: its functions are left alone by TorchScript's own pass. Its forward(x) has `on` (bf16), `off` and
// `other` to enter.
Module net_with(const std::string& body) {
  const auto made = [](const std::string& name, const std::string& type, const std::string& arguments) {
    const auto qualified = "__torch__.torch.amp.autocast_mode." + type;
    return "    " + name + " = " + qualified + ".__new__(" + qualified + ")\n    _" + name + " = (" + name +
           ").__init__(" + arguments + ")\n";
  };
  const std::string net = R"(
class Net(Module):
  __parameters__ = ["weight", ]
  __buffers__ = []
  weight : Tensor
  def forward(self: __torch__.Net, x: Tensor) -> Tensor:
)" + made("on", "autocast", "True, 15, ") +
                          made("off", "autocast", "False, 15, ") + made("other", "other", "") + body;
  const test::TempDir folder;
  test::ImportedClasses::make_net({{"__torch__", net}, {"__torch__.torch.amp.autocast_mode", kAutocast}},
                                  {{"weight", (at::randn({4, 4}) * 0.5).requires_grad_(true)}})
      .save(folder / "net.pt");
  return file::load_mapped_module(folder / "net.pt");
}

// As a model runs: the optimising executor would compute equal GEMMs once, whatever stands between them.
at::Tensor run(Module& net, const at::Tensor& x) {
  const torchscript::PlainExecution plain;
  return net.forward({x}).toTensor();
}

at::Tensor rows() {
  return at::linspace(-1, 1, 12).view({3, 4});
}

// Turns autocast on this thread on, to bf16.
struct Autocast {
  Autocast() { at::autocast::set_autocast_enabled(at::kCPU, true); }
  ~Autocast() { at::autocast::set_autocast_enabled(at::kCPU, false); }
};

void check_off() {
  CHECK_FALSE(at::autocast::is_autocast_enabled(at::kCPU));
  CHECK(at::autocast::is_autocast_cache_enabled());
}

}  // namespace

TEST_CASE("GEMMs in a region are computed in its type, those around it are not", "[runtime][model][autocast]") {
  torch::manual_seed(1);
  auto net = net_with(R"(
    y = torch.matmul(x, self.weight)
    with on:
      z = torch.matmul(x, self.weight)
    w = torch.matmul(x, self.weight)
    return torch.cat([y, z.float(), w])
)");
  apply_autocast_regions(net);
  const AutocastRegionsScope scope;
  const auto found = run(net, rows());
  const at::Tensor weight = net.attr("weight").toTensor();
  const auto whole = rows().matmul(weight);
  const auto half = rows().to(at::kBFloat16).matmul(weight.to(at::kBFloat16)).to(at::kFloat);
  CHECK(at::equal(found, at::cat({whole, half, whole})));
  CHECK_FALSE(at::equal(whole, half));
  check_off();
}

TEST_CASE("regions nest, and one that is off is off inside one that is on", "[runtime][model][autocast]") {
  auto net = net_with(R"(
    with on:
      y = torch.matmul(x, self.weight)
      with off:
        z = torch.matmul(x, self.weight)
      w = torch.matmul(x, self.weight)
    return torch.cat([y.float(), z, w.float()])
)");
  apply_autocast_regions(net);
  const auto found = run(net, rows());
  const at::Tensor weight = net.attr("weight").toTensor();
  const auto half = rows().to(at::kBFloat16).matmul(weight.to(at::kBFloat16)).to(at::kFloat);
  CHECK(at::equal(found, at::cat({half, rows().matmul(weight), half})));
  check_off();
}

TEST_CASE("a region in a run under autocast leaves it as it was", "[runtime][model][autocast]") {
  auto net = net_with(R"(
    with off:
      y = torch.matmul(x, self.weight)
    return torch.cat([y, torch.matmul(x, self.weight).float()])
)");
  apply_autocast_regions(net);
  const Autocast on;
  const auto found = run(net, rows());
  const at::Tensor weight = net.attr("weight").toTensor();
  CHECK(at::autocast::is_autocast_enabled(at::kCPU));
  const auto half = rows().to(at::kBFloat16).matmul(weight.to(at::kBFloat16)).to(at::kFloat);
  at::autocast::set_autocast_enabled(at::kCPU, false);
  CHECK(at::equal(found, at::cat({rows().matmul(weight), half})));
}

TEST_CASE("a region whose body throws ends with the call", "[runtime][model][autocast]") {
  auto net = net_with(R"(
    with on:
      with off:
        y = torch.matmul(x, torch.ones([5, 5]))
    return y
)");
  apply_autocast_regions(net);
  {
    const AutocastRegionsScope scope;
    CHECK_THROWS(run(net, rows()));
  }
  check_off();
}

TEST_CASE("other `with` statements stay what they are", "[runtime][model][autocast]") {
  auto net = net_with(R"(
    with other:
      y = torch.matmul(x, self.weight)
    return y
)");
  const auto before = net.get_method("forward").graph()->toString(false);
  apply_autocast_regions(net);
  CHECK(net.get_method("forward").graph()->toString(false) == before);
}

TEST_CASE("a model with a region trains as plain PyTorch under that autocast", "[runtime][model][autocast]") {
  test::ModelRun run(net_with(R"(
    with on:
      y = torch.matmul(x, self.weight)
    return y.float().sum()
)"));
  const auto found = run.step({rows()});
  check_off();
  at::Tensor weight;
  for (const auto& p : torch::jit::load(run.path()).named_parameters()) weight = p.value;
  const auto half = rows().to(at::kBFloat16).matmul(weight.to(at::kBFloat16));
  const auto loss = half.to(at::kFloat).sum();
  loss.backward();
  test::check_same(found, {loss.detach(), {{"weight", weight.grad()}}});
}
