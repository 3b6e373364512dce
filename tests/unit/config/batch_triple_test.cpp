#include "config/batch_triple.hpp"

#include <catch2/catch.hpp>

#include "load_support.hpp"

using namespace dslaunch::config;
using Catch::Matchers::Contains;

namespace {

dslaunch::Result<BatchSolution> solve(std::optional<int64_t> batch, std::optional<int64_t> micro,
                                      std::optional<int64_t> accumulation, int64_t world, bool is_auto = false) {
  return solve_batch({batch, micro, accumulation, is_auto, world});
}

constexpr std::nullopt_t kNone = std::nullopt;

}  // namespace

TEST_CASE("whatever is missing of the batch triple is solved", "[config][batch_triple]") {
  struct Case {
    std::optional<int64_t> batch, micro, accumulation;
    int64_t world;
    bool is_auto;
    int64_t wants[3];
  };
  auto c = GENERATE(values<Case>({
      {32, 4, 2, 4, false, {32, 4, 2}},
      {32, 4, kNone, 4, false, {32, 4, 2}},
      {32, kNone, 2, 4, false, {32, 4, 2}},
      {32, kNone, kNone, 4, false, {32, 8, 1}},
      {kNone, 4, 2, 4, false, {32, 4, 2}},
      {kNone, 4, kNone, 3, false, {12, 4, 1}},
      {kNone, kNone, kNone, 3, false, {3, 1, 1}},
      {kNone, kNone, 5, 3, false, {15, 1, 5}},
      {kNone, kNone, kNone, 2, true, {16, 8, 1}},
      {kNone, kNone, 4, 2, true, {64, 8, 4}},
      {64, kNone, kNone, 2, true, {64, 32, 1}},
      {1, kNone, kNone, 1, false, {1, 1, 1}},
  }));
  auto out = solve(c.batch, c.micro, c.accumulation, c.world, c.is_auto);
  REQUIRE(out.ok());
  CHECK(out->batch.train_batch == c.wants[0]);
  CHECK(out->batch.micro_batch == c.wants[1]);
  CHECK(out->batch.accumulation == c.wants[2]);
}

TEST_CASE("the explanation shows the numbers", "[config][batch_triple]") {
  CHECK(solve(32, 4, kNone, 4)->explanation ==
        "train_batch_size 32 = micro batch 4 × accumulation 2 × 4 ranks (accumulation solved)");
  CHECK(solve(kNone, kNone, kNone, 1)->explanation ==
        "train_batch_size 1 = micro batch 1 × accumulation 1 × 1 rank (no batch size given)");
}

TEST_CASE("an impossible batch triple shows the numbers and proposes others", "[config][batch_triple]") {
  CHECK(
      solve(32, 4, 3, 2).error() ==
      "train_batch_size 32 does not equal train_micro_batch_size_per_gpu 4 × gradient_accumulation_steps 3 × 2 ranks = "
      "24; set train_batch_size to 24, or leave one of the three keys out");
  CHECK(solve(32, 64, kNone, 2).error() ==
        "train_batch_size 32 cannot be split: train_micro_batch_size_per_gpu 64 × 2 ranks = 128 does not divide it, so "
        "gradient_accumulation_steps cannot be an integer; set train_batch_size to 128");
  CHECK_THAT(solve(10, 4, kNone, 2).error(), Contains("set train_batch_size to 8 or 16"));
  CHECK_THAT(solve(10, kNone, 3, 2).error(),
             Contains("gradient_accumulation_steps 3 × 2 ranks = 6") && Contains("6 or 12"));
  CHECK(solve(4, kNone, kNone, 8).error() ==
        "train_batch_size 4 over 8 ranks leaves ranks without a sample: micro batch 0 × accumulation 1 × 8 ranks = 0; "
        "set "
        "train_batch_size to 8");
  CHECK_THAT(solve(10, kNone, kNone, 4).error(), Contains("does not split evenly") && Contains("8 or 12"));
}

TEST_CASE("products beyond 64 bits are problems, not wrong numbers", "[config][batch_triple]") {
  CHECK_THAT(solve(kNone, INT64_MAX, 2, 1).error(), Contains("does not fit into 64 bits"));
  CHECK_THAT(solve(kNone, INT64_MAX / 2, 2, 3).error(), Contains("does not fit into 64 bits"));
  CHECK_FALSE(solve(INT64_MAX, INT64_MAX, kNone, 2).ok());
  CHECK_FALSE(solve(INT64_MAX, INT64_MAX / 2 + 1, kNone, 1).ok());
}

TEST_CASE("the triple's error stands at a key of the file", "[config][batch_triple]") {
  auto result = load("{\n \"train_batch_size\": 10,\n \"train_micro_batch_size_per_gpu\": 4\n}", 2);
  REQUIRE(result.issues.size() == 1);
  CHECK(result.issues[0].kind == Issue::Kind::kBatch);
  CHECK_THAT(lines_of(result)[0], Contains("ds.json:2:2: train_batch_size 10 cannot be split"));
  // A wrong type is reported alone: there is nothing to solve with.
  CHECK(load("{train_batch_size: 0, train_micro_batch_size_per_gpu: 4}").issues.size() == 1);
}

TEST_CASE("mixtures of auto and numbers are solved", "[config][batch_triple]") {
  auto batch_of = [](const std::string& text, int world) {
    auto result = load(text, world);
    INFO(all_lines(result));
    REQUIRE(result.ok());
    return result.config.batch;
  };
  auto c =
      batch_of("{train_batch_size: 64, train_micro_batch_size_per_gpu: \"auto\", gradient_accumulation_steps: 2}", 4);
  CHECK(c.micro_batch == 8);
  c = batch_of("{train_batch_size: \"auto\", train_micro_batch_size_per_gpu: 2, gradient_accumulation_steps: \"auto\"}",
               4);
  CHECK(c.train_batch == 8);
  // Whichever of the three says it, "auto" with nothing given is micro batch 8 and accumulation 1.
  for (const char* key : {"train_batch_size", "train_micro_batch_size_per_gpu", "gradient_accumulation_steps"}) {
    c = batch_of("{" + std::string(key) + ": \"auto\"}", 4);
    CHECK(c.micro_batch == 8);
    CHECK(c.accumulation == 1);
  }
}
