#include <ATen/ATen.h>

#include <catch2/catch.hpp>
#include <vector>

#include "runtime/sharding/gradient_sink.hpp"

using namespace dslaunch::runtime;

namespace {

// Two groups of this rank's elements [8, 16): the first is offloaded, in two spans; the second is not.
struct Example {
  std::vector<SpanState> state;
  std::unique_ptr<GradientSink> sink;

  // Of early updates: the group's number, spans and squares.
  struct Early {
    int64_t num_spans = 0;
    at::Tensor gradient, squares;
  };
  bool is_early = false;
  std::vector<Early> begun;

  explicit Example(at::ScalarType host_dtype) {
    for (const Range range : {Range{8, 11}, Range{11, 16}}) state.push_back({{0, 0, range}, arrays(range, true)});
    state.push_back({{1, 0, {8, 16}}, arrays({8, 16}, false)});
    HostGradientOptions options;
    options.own_ranges = {{8, 16}, {8, 16}};
    options.is_offloaded = {true, false};
    options.dtypes = {host_dtype, host_dtype};
    options.allocate = [](int64_t numel, at::ScalarType dtype) { return at::full({numel}, 99, dtype); };
    options.sum_of_squares = [](const at::Tensor& values) { return values.to(at::kDouble).square().sum(); };
    options.begins_early = [this] { return is_early; };
    options.begin_early = [this](std::span<const SpanState> group, const at::Tensor& squares) {
      at::Tensor gradient;
      for (const auto& [span, arrays] : group) {
        gradient = gradient.defined() ? at::cat({gradient, arrays.gradient}) : arrays.gradient;
      }
      begun.push_back({std::ssize(group), gradient.to(at::kFloat), squares});
    };
    auto resident = make_device_gradients({options.own_ranges, options.dtypes, at::kFloat, at::kCPU}, state);
    sink = make_host_gradients(std::move(resident), std::move(options), state);
  }

  static StateArrays arrays(Range range, bool is_offloaded) {
    return {.master = at::zeros({range.size()}), .is_offloaded = is_offloaded};
  }

  void deliver(int group, const at::Tensor& slice, bool is_first, bool is_last = false) {
    sink->prepare(group, {});
    sink->deliver(group, slice, is_first, is_last);
  }

  at::Tensor offloaded() const {
    return at::cat({state[0].arrays.gradient.to(at::kFloat), state[1].arrays.gradient.to(at::kFloat)});
  }
};

at::Tensor slice(double begin) {
  return at::arange(8).mul(0.37).add(begin).to(at::kBFloat16);
}

}  // namespace

TEST_CASE("gradients of offloaded state are those that stay on the device", "[runtime][sharding]") {
  for (const auto dtype : {at::kFloat, at::kBFloat16}) {
    Example e(dtype);
    for (int step = 0; step < 2; ++step) {
      for (int group : {0, 1}) {
        e.deliver(group, slice(step), true);
        // A second slice: its sum is not exact in bf16, so the sink goes on in fp32.
        e.deliver(group, slice(100.5), false);
      }
      e.sink->finish();
      CHECK(at::equal(e.offloaded(), slice(step).to(at::kFloat) + slice(100.5).to(at::kFloat)));
      CHECK(at::equal(e.offloaded(), e.state[2].arrays.gradient));
      e.sink->release();
      CHECK_FALSE(e.state[0].arrays.gradient.defined());
    }
  }
}

TEST_CASE("a single slice stays in its own dtype on the host", "[runtime][sharding]") {
  Example e(at::kBFloat16);
  e.deliver(0, slice(0), true);
  e.sink->finish();
  CHECK(e.state[1].arrays.gradient.scalar_type() == at::kBFloat16);
  CHECK(at::equal(e.offloaded(), slice(0).to(at::kFloat)));
}

TEST_CASE("a sum over calls stays in fp32 on the host, where one call's gradients are narrower",
          "[runtime][sharding]") {
  Example e(at::kBFloat16);
  for (int step = 0; step < 2; ++step) {
    const at::Tensor sum = slice(step).to(at::kFloat) + slice(100.5).to(at::kFloat);
    e.deliver(0, sum, true, true);
    e.sink->finish();
    CHECK(at::equal(e.offloaded(), sum));
    e.sink->release();
  }
}

TEST_CASE("offloaded groups without a gradient have zeros, also after a step that had one", "[runtime][sharding]") {
  Example e(at::kFloat);
  e.sink->finish();
  CHECK(e.offloaded().count_nonzero().item<int64_t>() == 0);
  e.sink->release();
  e.deliver(0, slice(1), true);
  e.sink->finish();
  CHECK(e.offloaded().count_nonzero().item<int64_t>() == 8);
  e.sink->release();
  e.sink->finish();
  CHECK(e.offloaded().count_nonzero().item<int64_t>() == 0);
}

TEST_CASE("an early update begins with the whole sum of an offloaded group, once it is known to be whole",
          "[runtime][sharding]") {
  Example e(at::kBFloat16);
  e.is_early = true;
  for (int step = 0; step < 2; ++step) {
    e.deliver(1, slice(1), true, true);
    e.deliver(0, slice(step), true);
    REQUIRE(e.begun.size() == static_cast<size_t>(step));
    e.deliver(0, slice(100.5), false, true);
    REQUIRE(e.begun.size() == static_cast<size_t>(step) + 1);
    const at::Tensor sum = slice(step).to(at::kFloat) + slice(100.5).to(at::kFloat);
    CHECK(e.begun.back().num_spans == 2);
    CHECK(at::equal(e.begun.back().gradient, sum));
    CHECK(e.begun.back().squares.item<double>() == Approx(sum.to(at::kDouble).square().sum().item<double>()));
    CHECK_THROWS_WITH(e.deliver(0, slice(0), false, false), Catch::Matchers::Contains("complete"));
    e.sink->finish();
    CHECK(at::equal(e.offloaded(), sum));
    e.sink->release();
  }
  e.is_early = false;
  e.deliver(0, slice(0), true, true);
  CHECK(e.begun.size() == 2);
}
