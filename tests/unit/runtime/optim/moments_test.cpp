#include "runtime/optim/moments.hpp"

#include <ATen/ATen.h>

#include <catch2/catch.hpp>

using namespace dslaunch::runtime;

TEST_CASE("moments lie at the same place modulo 16 bytes as their master", "[runtime][moments]") {
  const dslaunch::config::Optimizer settings{.type = dslaunch::config::OptimizerType::kAdagrad,
                                             .initial_accumulator_value = 0.5};
  const auto optimizer = optim::make_flat_optimizer({{{"a", settings}}, {0}, 0}, {});
  const at::Tensor parameter = at::arange(64, at::kFloat);
  for (const int64_t begin : {0, 10, 15, 32}) {
    SpanState state{{0, 0, {begin, 64}}, arrays_of_parameter(parameter.narrow(0, begin, 64 - begin), at::kCPU)};
    optim::allocate_moments(*optimizer, state);
    const auto& [span, arrays] = state;
    REQUIRE(arrays.moments.size() == 1);
    CHECK(at::equal(arrays.moments[0], at::full_like(arrays.master, 0.5)));
    CHECK(reinterpret_cast<uintptr_t>(arrays.moments[0].data_ptr()) % 16 ==
          reinterpret_cast<uintptr_t>(arrays.master.data_ptr()) % 16);
  }
}
