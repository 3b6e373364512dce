#include "runtime/state/element_init.hpp"

#include <ATen/ATen.h>

#include <catch2/catch.hpp>

using dslaunch::runtime::init_elements;

TEST_CASE("a slice filled alone equals the same slice of the whole", "[runtime][element_init]") {
  auto whole = at::empty({1000}, at::kFloat);
  init_elements("fc.weight", 2, 7, 0.02, 0, whole);
  auto part = at::empty({123}, at::kFloat);
  init_elements("fc.weight", 2, 7, 0.02, 400, part);
  CHECK(at::equal(part, whole.narrow(0, 400, 123)));
}

TEST_CASE("matrices are normal with the wished deviation, norms one, biases zero", "[runtime][element_init]") {
  auto values = at::empty({200000}, at::kFloat);
  init_elements("fc.weight", 2, 0, 0.02, 0, values);
  CHECK(values.mean().item<double>() == Approx(0).margin(3 * 0.02 / std::sqrt(200000.0)));
  CHECK(values.std().item<double>() == Approx(0.02).epsilon(0.01));
  // Kurtosis of a normal distribution is 3: a uniform one would give 1.8.
  CHECK((values / 0.02).pow(4).mean().item<double>() == Approx(3).epsilon(0.05));
  init_elements("norm.weight", 1, 0, 0.02, 0, values);
  CHECK(at::equal(values, at::ones_like(values)));
  init_elements("fc.bias", 1, 0, 0.02, 0, values);
  CHECK(at::equal(values, at::zeros_like(values)));
}

TEST_CASE("names and seeds give different numbers", "[runtime][element_init]") {
  auto a = at::empty({64}, at::kFloat), b = at::empty({64}, at::kFloat), c = at::empty({64}, at::kFloat);
  init_elements("a.weight", 2, 0, 1.0, 0, a);
  init_elements("b.weight", 2, 0, 1.0, 0, b);
  init_elements("a.weight", 2, 1, 1.0, 0, c);
  CHECK_FALSE(at::equal(a, b));
  CHECK_FALSE(at::equal(a, c));
}
