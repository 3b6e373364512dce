// Kept constants under the capture of a CUDA graph. Without a CUDA device it is skipped.
#include <ATen/ATen.h>
#include <torch/csrc/jit/ir/irparser.h>

#include <catch2/catch.hpp>

#include "runtime/device/device_module.hpp"
#include "runtime/engine/step/device_graph.hpp"
#include "runtime/model/constants/constant_region.hpp"
#include "support/cuda_device.hpp"

using namespace dslaunch;
using namespace dslaunch::runtime;
using model::constants::ConstantRegion;
using model::constants::KnownMasks;

namespace {

const at::Device kDevice(at::kCUDA, 0);

c10::intrusive_ptr<ConstantRegion> make_region() {
  auto graph = std::make_shared<torch::jit::Graph>();
  torch::jit::parseIR(R"(graph(%n : int):
  %none : NoneType = prim::Constant()
  %device : Device = prim::Constant[value="cuda:0"]()
  %table : Tensor = aten::arange(%n, %none, %none, %device, %none)
  return (%table))",
                      graph.get());
  return c10::make_intrusive<ConstantRegion>(
      std::move(graph), model::constants::RegionContext{std::make_shared<KnownMasks>(), kDevice, device::is_capturing});
}

at::Tensor table(ConstantRegion& region, int64_t size) {
  torch::jit::Stack stack{size};
  region.run(stack);
  return stack.back().toTensor();
}

}  // namespace

TEST_CASE("a graph reads what was kept before its capture, and leaves nothing of its own", "[gpu][constants]") {
  if (!test::has_device()) return;
  const auto region = make_region();
  const at::Tensor kept = table(*region, 3);
  CHECK(region->num_evaluations() == 1);
  at::Tensor of_known, of_new;
  auto graph = engine::step::make_device_graph(kDevice);
  graph->capture([&] {
    of_known = table(*region, 3) * 2;
    of_new = table(*region, 5) * 2;
  });
  CHECK(region->num_evaluations() == 2);
  // The graph's constant survives any number of other shapes.
  for (int64_t size = 10; size < 10 + 2 * static_cast<int64_t>(model::constants::kMaxShapes); ++size) {
    table(*region, size);
  }
  graph->replay();
  CHECK(of_known.cpu().equal(at::arange(3) * 2));
  CHECK(of_new.cpu().equal(at::arange(5) * 2));
  CHECK(table(*region, 3).is_same(kept));
  CHECK(table(*region, 5).cpu().equal(at::arange(5)));
}
