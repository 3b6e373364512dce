#include "config/fingerprint.hpp"

#include <catch2/catch.hpp>

#include "load_support.hpp"

using namespace dslaunch::config;

TEST_CASE("a config is the same in any order, from any source and for any world", "[config][fingerprint]") {
  const auto of = [](const std::string& text, int world = 1, const std::vector<Override>& overrides = {}) {
    const auto result = load(text, world, overrides);
    INFO(all_lines(result));
    REQUIRE(result.ok());
    return fingerprint(result);
  };
  const uint64_t base = of("{optimizer: {params: {lr: 0.5}}, train_batch_size: 8}");
  CHECK(of("{train_batch_size: 8, optimizer: {params: {lr: 0.5}}}") == base);
  CHECK(of("{optimizer: {params: {lr: 0.5}}, train_batch_size: 8}", 4) == base);
  CHECK(of("{train_batch_size: 8}", 1, {{"optimizer.params.lr", "0.5", "--set"}}) == base);
  CHECK(of("{optimizer: {params: {lr: 0.5}}, train_batch_size: 8, train: {steps: 7}}") == base);
  CHECK(of("{optimizer: {params: {lr: 0.5}}, train_batch_size: 8, train: {seed: 7}}") != base);
  CHECK(of("{optimizer: {params: {lr: 0.25}}, train_batch_size: 8}") != base);
  CHECK(of("{optimizer: {params: {lr: 0.5}}}") != base);
}
