#include "runtime/engine/step/shard_update.hpp"

#include <ATen/ATen.h>

#include <catch2/catch.hpp>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "support/gate.hpp"

using namespace dslaunch;
using namespace dslaunch::runtime;
using namespace dslaunch::runtime::engine::step;

namespace {

// Subtracts the gradient, when it may.
class GatedOptimizer final : public optim::FlatOptimizer {
 public:
  test::Gate& gate;
  explicit GatedOptimizer(test::Gate& g) : gate(g) {}
  const std::vector<std::string>& moment_names(int) const override { return names_; }
  void step(std::span<const SpanState> states, const optim::StepInputs& inputs) const override {
    if (states.empty()) return;  // nothing rests on the device
    gate.pass();
    CHECK(inputs.rates.size() == 1);
    for (const auto& [span, arrays] : states) arrays.master.sub_(arrays.gradient);
  }

 private:
  std::vector<std::string> names_;
};

}  // namespace

TEST_CASE("the update of offloaded state goes on when the object that began it is gone", "[runtime][engine]") {
  config::Scheduler scheduler;
  const optim::OptimizerGroups groups{.groups = {{}}, .of_parameter = {0}};
  const RateSchedule rates(scheduler, groups, 10);
  const precision::LossScaling loss_scaling({}, at::kCPU);
  test::Gate gate;
  const GatedOptimizer optimizer(gate);
  const StepStreams streams{at::kCPU, false};
  SpanState state{{0, 0, {0, 4}}, {}};
  state.arrays.is_offloaded = true;
  state.arrays.master = at::full({4}, 3.0F);
  state.arrays.gradient = at::ones({4});
  state.arrays.low_precision = at::zeros({4}, at::kBFloat16);
  offload::HostUpdates updates({.chunk_numel = 2}, 1, streams);

  alignas(ShardUpdate) std::byte place[sizeof(ShardUpdate)];
  auto* update = new (place) ShardUpdate(optimizer, loss_scaling, rates, /*keeps_masters=*/true, &updates);
  update->run({&state, 1}, {.gradient_factor = at::ones({}), .skip = at::zeros({})}, {});
  gate.open(1);
  std::destroy_at(update);
  std::memset(place, 0xff, sizeof place);  // as whatever uses its memory next
  gate.open(1);
  updates.finish();
  CHECK(at::equal(state.arrays.master, at::full({4}, 2.0F)));
}
