// Jobs in simulated worlds, each from a seed. DSLAUNCH_SEEDS=FIRST:COUNT chooses others, DSLAUNCH_SEEDS=SEED repeats
// one and prints its history.
#include "simulation/simulation.hpp"

#include <time.h>
#include <algorithm>
#include <catch2/catch.hpp>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <string_view>

#include "base/format.hpp"

using namespace dslaunch::simulation;

namespace {

using namespace std::chrono_literals;

// For the seeds that everyone runs.
constexpr double kSeconds = 2.5;

double processor_seconds() {
  timespec now{};
  ::clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + static_cast<double>(now.tv_nsec) / 1e9;
}

struct Result {
  std::string violation;
  uint64_t fingerprint = 0;
};

Result simulate(uint64_t seed, PlantedBug bug = PlantedBug::kNone, bool prints = false) {
  Simulation simulation(seed, bug, prints);
  Result result;
  result.violation = simulation.run();
  result.fingerprint = simulation.world.fingerprint();
  for (const auto& line : simulation.world.history()) std::printf("%s\n", line.c_str());
  return result;
}

struct Seeds {
  uint64_t first = 1, count = 0;  // 0: as many as there is time for
};

Seeds chosen_seeds() {
  const char* text = std::getenv("DSLAUNCH_SEEDS");
  if (text == nullptr) return {};
  const std::string_view words(text);
  const size_t colon = words.find(':');
  const uint64_t first = std::strtoull(text, nullptr, 10);
  return {first, colon == std::string_view::npos ? 1 : std::strtoull(text + colon + 1, nullptr, 10)};
}

struct Expected {
  PlantedBug bug;
  std::string_view words;  // in the violation
};

}  // namespace

// Both the kept ones and new ones would be worth nothing otherwise.
TEST_CASE("a seed gives the same history every time", "[simulation]") {
  for (uint64_t seed = 1; seed <= 20; ++seed) CHECK(simulate(seed).fingerprint == simulate(seed).fingerprint);
}

TEST_CASE("a planted bug is found within 1,000 seeds", "[simulation]") {
  const auto [bug, words] = GENERATE(Expected{PlantedBug::kCleanupDoesNothing, "still runs on"},
                                     Expected{PlantedBug::kFailuresAreSuccesses, "exit code 0, but only"},
                                     Expected{PlantedBug::kCausesAreSwapped, "did not fail by itself"},
                                     Expected{PlantedBug::kTimersDoNotExpire, "the job does not end"},
                                     Expected{PlantedBug::kRanksStartTwice, "two runs of one job"},
                                     Expected{PlantedBug::kLateHostsAreIgnored, "internal error"});
  std::string violation;
  uint64_t seed = 0;
  while (violation.find(words) == std::string::npos && seed < 1000) violation = simulate(++seed, bug).violation;
  INFO("planted bug " << static_cast<int>(bug) << ", the last seed " << seed << ": " << violation);
  CHECK_THAT(violation, Catch::Matchers::Contains(std::string(words)));
  std::printf("planted bug %d is found by seed %d: %s\n", static_cast<int>(bug), static_cast<int>(seed),
              violation.c_str());
}

TEST_CASE("every simulated job ends as it should", "[simulation]") {
  const Seeds seeds = chosen_seeds();
  const double start = processor_seconds();
  uint64_t seed = seeds.first;
  std::string violations;
  for (; seeds.count > 0 ? seed < seeds.first + seeds.count : processor_seconds() - start < kSeconds; ++seed) {
    const Result result = simulate(seed, PlantedBug::kNone, /*prints=*/seeds.count == 1);
    if (result.violation.empty()) continue;
    if (violations.empty() && seeds.count != 1) simulate(seed, PlantedBug::kNone, /*prints=*/true);
    violations += fmt::format("seed {}: {}\n  repeat it: DSLAUNCH_SEEDS={} test_simulation 'every*'\n", seed,
                              result.violation, seed);
  }
  const double seconds = processor_seconds() - start;
  const auto count = static_cast<double>(seed - seeds.first);
  std::printf("%.0f seeds in %.2f s of processor time: %.0f seeds per second\n", count, seconds, count / seconds);
  INFO(violations);
  CHECK(violations.empty());
}
