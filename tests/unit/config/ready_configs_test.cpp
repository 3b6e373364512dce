// Every file under configs/ loads, at the world sizes its users will try.
#include <catch2/catch.hpp>
#include <filesystem>

#include "load_support.hpp"
#include "support/checkout.hpp"

using namespace dslaunch::config;

TEST_CASE("every ready config loads on 1, 2, 4 and 8 ranks", "[config][ready_configs]") {
  int count = 0;
  for (const auto& entry : std::filesystem::directory_iterator(dslaunch::test::source_file("configs"))) {
    ++count;
    for (int world : {1, 2, 4, 8}) {
      auto result = load_file(entry.path(), {}, {world});
      INFO(all_lines(result));
      CHECK(result.ok());
      CHECK(result.batch_explanation != "");
    }
  }
  CHECK(count >= 5);
}

TEST_CASE("the demo's config is the byte-level token stream that the demo makes", "[config][ready_configs]") {
  auto result = load_file(dslaunch::test::source_file("configs/demo.json"), {}, {2});
  REQUIRE(result.ok());
  CHECK(result.config.data.format == "tokens");
  CHECK(result.config.data.dtype == "uint8");
  CHECK(result.config.data.seq_len == 64);
  CHECK(result.config.zero.stage == 1);
  CHECK(result.config.batch.micro_batch == 8);
  CHECK(result.config.scheduler.total_num_steps == result.config.train.steps);
}
