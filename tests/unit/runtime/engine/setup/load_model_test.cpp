// What a model takes of the process that loads it.
#include "runtime/engine/setup/load_model.hpp"

#include <catch2/catch.hpp>

#include "support/mixed_net.hpp"
#include "support/temp_dir.hpp"

using namespace dslaunch;
using namespace dslaunch::runtime;
using engine::setup::load_model;

TEST_CASE("models of one process have settings of their own, and share what the device has",
          "[runtime][engine][load_model]") {
  test::TempDir folder;
  const std::string path = folder / "net.pt";
  test::make_mixed_net().save(path);
  const device::Device device(at::kCPU), other(at::kCPU);
  const auto num_users = [&] { return device.gemms().use_count() - 1; };
  config::JobConfig plain, deterministic;
  plain.kernels.gemm_autotuning = false;
  deterministic.deterministic = true;

  const auto first = load_model(path, plain, device), second = load_model(path, deterministic, device);
  CHECK(num_users() == 0);
  auto third = load_model(path, {}, device);
  const auto of_one = num_users();
  CHECK(of_one > 0);
  const auto fourth = load_model(path, plain, device);  // changes nothing for the third
  CHECK(num_users() == of_one);
  const auto fifth = load_model(path, {}, device), of_other = load_model(path, {}, other);
  CHECK(num_users() == 2 * of_one);
  third.reset();
  CHECK(num_users() == of_one);
  CHECK(device.kernels().use_count() > 4);
  CHECK(other.kernels().use_count() < device.kernels().use_count());
}
