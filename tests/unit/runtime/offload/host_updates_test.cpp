#include "runtime/offload/host_updates.hpp"

#include <ATen/ATen.h>

#include <catch2/catch.hpp>
#include <limits>
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

namespace {

// Writes down which groups are updated, one after the other, each when it may.
struct Order {
  Gate has_begun, may_end, has_ended;
  std::vector<int> groups;

  HostUpdates::Update update() {
    return [this](std::span<const SpanState> states, const UpdateScalars& scalars) {
      has_begun.open(1);
      may_end.pass();
      groups.push_back(states[0].span.flat_group);
      add_gradient(states, scalars);
      has_ended.open(1);
    };
  }
};

struct EarlyFixture {
  StepStreams streams{at::kCPU, false};
  HostUpdates updates{{.chunk_numel = 100}, 3, streams};
  std::vector<SpanState> state{offloaded(0, 7, at::kBFloat16), offloaded(1, 4, at::kFloat), offloaded(2, 1, at::kHalf)};
  UpdateScalars scalars{.gradient_factor = at::full({}, 2.0F), .skip = at::zeros({}), .applied_steps = {}};

  void expect(HostUpdates::Update update, double loss = 1) {
    updates.expect_early(scalars.gradient_factor, at::full({}, loss), std::move(update));
  }
  void land(int group, double squares = 1) {
    updates.begin_early({&state[static_cast<size_t>(group)], 1}, at::full({}, squares, at::kDouble));
  }
  // After so many updates.
  void check_masters(double steps) const {
    for (const auto& [span, arrays] : state) {
      CHECK(at::equal(arrays.master, at::arange(span.numel(), at::kFloat) + 1000 * span.flat_group + 2 * steps));
    }
  }
};

constexpr double kNaN = std::numeric_limits<double>::quiet_NaN(), kInfinity = std::numeric_limits<double>::infinity();

}  // namespace

TEST_CASE("groups that land in backward are updated there, the others in the order of use", "[runtime][offload]") {
  EarlyFixture f;
  Order order;
  order.may_end.open(3);
  CHECK_FALSE(f.updates.takes_early_groups());
  f.expect(order.update());
  CHECK(f.updates.takes_early_groups());
  f.land(2);
  order.has_ended.pass();  // backward goes on
  CHECK(order.groups == std::vector<int>{2});
  f.updates.begin(f.state, f.scalars, order.update());
  CHECK_FALSE(f.updates.takes_early_groups());
  f.updates.finish();
  CHECK(order.groups == std::vector<int>{2, 0, 1});
  f.check_masters(1);
  CHECK(f.state[2].arrays.low_precision.item<float>() == 2002);
}

TEST_CASE("a group that has landed but waits when backward ends is updated in the order of use", "[runtime][offload]") {
  EarlyFixture f;
  Order order;
  f.expect(order.update());
  f.land(2);
  order.has_begun.pass();
  f.land(1);
  f.land(0);
  f.updates.begin(f.state, f.scalars, order.update());
  order.may_end.open(3);
  f.updates.finish();
  CHECK(order.groups == std::vector<int>{2, 0, 1});
  f.check_masters(1);
}

TEST_CASE("an early update waits for the update of the step before", "[runtime][offload]") {
  EarlyFixture f;
  Order order;
  f.updates.begin(f.state, f.scalars, order.update());
  f.expect(order.update());
  f.land(2);
  order.may_end.open(6);
  f.updates.begin(f.state, f.scalars, order.update());
  f.updates.finish();
  CHECK(std::vector<int>(order.groups.begin(), order.groups.begin() + 3) == std::vector<int>{0, 1, 2});
  f.check_masters(2);
}

TEST_CASE("from the first group that is not finite on nothing is updated early", "[runtime][offload]") {
  EarlyFixture f;
  Order order;
  order.may_end.open(100);
  const auto [loss, squares] = GENERATE(table<double, double>({{1, kNaN}, {1, kInfinity}, {1, 1e39}, {kNaN, 1}}));
  INFO("loss " << loss << ", squares " << squares);
  f.expect(order.update(), loss);
  if (squares != 1) {
    f.land(2);
    order.has_ended.pass();
  }
  f.land(1, squares);
  f.land(0);
  f.scalars.skip = at::ones({});  // what the verdict comes to
  f.updates.begin(f.state, f.scalars, order.update());
  f.updates.finish();
  CHECK(order.groups == (squares != 1 ? std::vector<int>{2} : std::vector<int>{}));
  f.expect(order.update());
  f.land(0);
  f.updates.begin(f.state, f.scalars, order.update());
  f.updates.finish();
  CHECK(order.groups.size() <= 1);
  CHECK(f.state[0].arrays.master[0].item<float>() == 0);
  CHECK(f.state[1].arrays.master[0].item<float>() == 1000);
}

TEST_CASE("nothing is early after a step that was skipped", "[runtime][offload]") {
  EarlyFixture f;
  f.scalars.skip = at::ones({});
  f.updates.begin(f.state, f.scalars, add_gradient);
  f.expect(add_gradient);
  f.land(1);
  f.updates.begin(f.state, f.scalars, add_gradient);
  f.updates.finish();
  f.check_masters(0);
}

TEST_CASE("the state of a step that has ended in its backward is refused", "[runtime][offload]") {
  EarlyFixture f;
  f.expect(add_gradient);
  f.land(2);
  const auto refused = Catch::Matchers::Contains("a step has ended in its backward");
  CHECK_THROWS_WITH(f.updates.finish(), refused);
  CHECK_THROWS_WITH(f.expect(add_gradient), refused);
  CHECK_THROWS_WITH(f.updates.finish(), refused);
}

TEST_CASE("the step that updates a group early neither reads its parameters again nor brings more gradients",
          "[runtime][offload]") {
  EarlyFixture f;
  f.expect(add_gradient);
  f.land(1);
  CHECK_THROWS_WITH(f.updates.wait(1), Catch::Matchers::Contains("not read any more"));
  CHECK_NOTHROW(f.updates.wait(0));
  CHECK_THROWS_WITH(f.land(1), Catch::Matchers::Contains("complete once"));
}

TEST_CASE("an error of an early update reaches the end of its backward", "[runtime][offload]") {
  EarlyFixture f;
  Gate failing;
  f.expect([&](std::span<const SpanState>, const UpdateScalars&) {
    failing.open(1);
    throw std::runtime_error("no memory");
  });
  f.land(2);
  failing.pass();
  const auto go_on = [&] {
    f.updates.begin(f.state, f.scalars, add_gradient);  // which may come before the error
    f.updates.finish();
  };
  CHECK_THROWS_WITH(go_on(), "no memory");
  CHECK_THROWS_WITH(f.updates.finish(), "no memory");
  CHECK(f.state[0].arrays.master[0].item<float>() == 0);
}

TEST_CASE("updates that are delayed are never early", "[runtime][offload]") {
  StepStreams streams{at::kCPU, false};
  HostUpdates updates{{.delayed_after = 3}, 1, streams};
  CHECK_FALSE(updates.may_be_early());
  CHECK_THROWS_WITH(updates.expect_early(at::ones({}), at::ones({}), add_gradient),
                    Catch::Matchers::Contains("never early"));
}

TEST_CASE("updates use a share of the rank's cores, and ranks that are not bound divide the host's",
          "[runtime][offload]") {
  CHECK(choose_update_threads(16, 16, 1, 1.0) == 16);
  CHECK(choose_update_threads(4, 4, 1, 0.8) == 3);
  CHECK(choose_update_threads(16, 16, 1, 0.94) == 15);
  CHECK(choose_update_threads(16, 128, 8, 1.0) == 16);   // bound
  CHECK(choose_update_threads(128, 128, 8, 1.0) == 16);  // not bound
  CHECK(choose_update_threads(1, 64, 64, 0.0) == 1);
}
