#include "runtime/offload/host_updates.hpp"

#include <ATen/ATen.h>

#include <catch2/catch.hpp>
#include <stdexcept>
#include <vector>

#include "support/gate.hpp"

using namespace dslaunch::runtime;
using namespace dslaunch::runtime::offload;
using dslaunch::test::Gate;

namespace {

SpanState offloaded(int group, int64_t numel, at::ScalarType dtype) {
  SpanState state{{group, 0, {0, numel}}, {}};
  state.arrays.is_offloaded = true;
  state.arrays.master = at::arange(numel, at::kFloat) + 1000 * group;
  state.arrays.gradient = at::ones({numel}, at::kFloat);
  state.arrays.low_precision = at::zeros({numel}, dtype);
  return state;
}

// Adds the gradient, and writes the low-precision copy, as an optimizer does.
void add_gradient(std::span<const SpanState> states, const UpdateScalars& scalars) {
  for (const auto& [span, arrays] : states) {
    arrays.master.add_(arrays.gradient * *scalars.gradient_factor.const_data_ptr<float>());
    if (arrays.low_precision.defined()) arrays.low_precision.copy_(arrays.master);
  }
}

struct Fixture {
  StepStreams streams{at::kCPU, false};
  HostUpdates updates{{.chunk_numel = 3}, 3, streams};
  std::vector<SpanState> state{offloaded(0, 7, at::kBFloat16), offloaded(1, 4, at::kFloat), offloaded(2, 1, at::kHalf)};
  UpdateScalars scalars{.gradient_factor = at::full({}, 2.0F), .skip = at::zeros({}), .applied_steps = {}};
};

}  // namespace

TEST_CASE("an update reaches every chunk, the masters and the parameters", "[runtime][offload]") {
  Fixture f;
  std::vector<int64_t> sizes;
  f.updates.begin(f.state, f.scalars, [&](std::span<const SpanState> states, const UpdateScalars& scalars) {
    for (const auto& each : states) sizes.push_back(each.arrays.master.numel());
    add_gradient(states, scalars);
  });
  f.updates.finish();
  CHECK(sizes == std::vector<int64_t>{3, 3, 1, 3, 1, 1});
  for (const auto& [span, arrays] : f.state) {
    const at::Tensor expected = at::arange(span.numel(), at::kFloat) + 1000 * span.flat_group + 2;
    CHECK(at::equal(arrays.master, expected));
    CHECK(at::equal(arrays.low_precision, expected.to(arrays.low_precision.scalar_type())));
  }
}

TEST_CASE("a group is there before the groups after it are updated", "[runtime][offload]") {
  Fixture f;
  Gate gate;
  f.updates.begin(f.state, f.scalars, [&](std::span<const SpanState> states, const UpdateScalars& scalars) {
    gate.pass();
    add_gradient(states, scalars);
  });
  gate.open(3);  // the chunks of group 0
  f.updates.wait(0);
  CHECK(f.state[0].arrays.master[6].item<float>() == 8);
  CHECK(f.state[2].arrays.master[0].item<float>() == 2000);
  gate.open(3);
  f.updates.wait(2);
  CHECK(f.state[2].arrays.master[0].item<float>() == 2002);
}

TEST_CASE("the next update begins after the one before", "[runtime][offload]") {
  Fixture f;
  for (int step = 0; step < 50; ++step) f.updates.begin(f.state, f.scalars, add_gradient);
  f.updates.finish();
  for (const auto& [span, arrays] : f.state) {
    CHECK(at::equal(arrays.master, at::arange(span.numel(), at::kFloat) + 1000 * span.flat_group + 100));
  }
}

TEST_CASE("a skipped step writes nothing", "[runtime][offload]") {
  Fixture f;
  f.scalars.skip = at::ones({});
  f.updates.begin(f.state, f.scalars, add_gradient);
  f.updates.finish();
  CHECK(at::equal(f.state[0].arrays.master, at::arange(7, at::kFloat)));
  CHECK(f.state[0].arrays.low_precision.count_nonzero().item<int64_t>() == 0);
}

TEST_CASE("state that is not offloaded is left alone", "[runtime][offload]") {
  Fixture f;
  f.state[1].arrays.is_offloaded = false;
  f.updates.begin(f.state, f.scalars, add_gradient);
  f.updates.wait(1);
  f.updates.finish();
  CHECK(f.state[1].arrays.master[0].item<float>() == 1000);
  CHECK(f.state[2].arrays.master[0].item<float>() == 2002);
}

TEST_CASE("an error of an update reaches whoever waits for it, and the next step", "[runtime][offload]") {
  Fixture f;
  f.updates.begin(f.state, f.scalars,
                  [](std::span<const SpanState>, const UpdateScalars&) { throw std::runtime_error("no disk"); });
  CHECK_THROWS_WITH(f.updates.wait(2), "no disk");
  CHECK_THROWS_WITH(f.updates.finish(), "no disk");
  CHECK_THROWS_WITH(f.updates.begin(f.state, f.scalars, add_gradient), "no disk");
}

TEST_CASE("whoever waits learns that a peer was lost", "[runtime][offload]") {
  Gate gate;
  StepStreams streams{at::kCPU, false};
  HostUpdates updates{
      {.chunk_numel = 100, .check_peers = [] { throw std::runtime_error("rank 1 is gone"); }}, 1, streams};
  std::vector<SpanState> state{offloaded(0, 5, at::kBFloat16)};
  updates.begin(state, {.gradient_factor = at::ones({}), .skip = {}, .applied_steps = {}},
                [&](std::span<const SpanState>, const UpdateScalars&) { gate.pass(); });
  CHECK_THROWS_WITH(updates.wait(0), "rank 1 is gone");
  gate.open(1);
}

TEST_CASE("an update that nobody waits for ends with its owner, between two chunks", "[runtime][offload]") {
  Gate gate;
  int num_chunks = 0;
  {
    Fixture f;
    f.updates.begin(f.state, f.scalars, [&](std::span<const SpanState>, const UpdateScalars&) {
      gate.pass();
      num_chunks += 1;
    });
    gate.open(100);
  }
  CHECK(num_chunks <= 6);
}

TEST_CASE("updates leave two cores to the step, and bound ranks their own", "[runtime][offload]") {
  CHECK(choose_update_threads(16, 16, 1, 0.8) == 12);
  CHECK(choose_update_threads(16, 16, 1, 1.0) == 14);
  CHECK(choose_update_threads(16, 128, 8, 1.0) == 14);   // bound
  CHECK(choose_update_threads(128, 128, 8, 1.0) == 14);  // not bound
  CHECK(choose_update_threads(2, 2, 1, 0.8) == 1);
  CHECK(choose_update_threads(1, 64, 64, 0.0) == 1);
}
