#include "launch/supervisor/restart_backoff.hpp"

#include <catch2/catch.hpp>

using namespace dslaunch;
using namespace dslaunch::launch;
using namespace std::chrono_literals;

namespace {

AttemptProgress run_time(std::chrono::milliseconds time) {
  return {.run_time = time, .last_step = {}};
}

AttemptProgress did_step(int64_t step) {
  return {.run_time = 1s, .last_step = step};
}

}  // namespace

TEST_CASE("a job that fails at once waits longer and longer, up to a minute", "[launch][restart_backoff]") {
  RestartBackoff backoff([] { return 0.5; });
  std::vector<std::chrono::milliseconds> waits;
  for (int i = 0; i < 9; ++i) waits.push_back(backoff.next(run_time(10ms)));
  CHECK(waits == std::vector<std::chrono::milliseconds>{0s, 1s, 2s, 4s, 8s, 16s, 32s, 60s, 60s});
  for (int i = 0; i < 100; ++i) CHECK(backoff.next(run_time(10ms)) == 60s);
}

TEST_CASE("jobs that failed together restart at different times", "[launch][restart_backoff]") {
  double random = 0;
  RestartBackoff backoff([&] { return random; });
  CHECK(backoff.next(run_time(0ms)) == 0s);
  CHECK(backoff.next(run_time(0ms)) == 800ms);
  random = 0.999999;
  const auto wait = backoff.next(run_time(0ms));
  CHECK((wait > 2390ms && wait <= 2400ms));
}

TEST_CASE("running for a minute counts as progress", "[launch][restart_backoff]") {
  RestartBackoff backoff([] { return 0.5; });
  backoff.next(run_time(0ms));
  CHECK(backoff.next(run_time(59999ms)) == 1s);
  CHECK(backoff.next(run_time(60s)) == 0s);
  CHECK(backoff.next(run_time(0ms)) == 1s);
  CHECK(backoff.next(run_time(0ms)) == 2s);
}

TEST_CASE("a step further than all attempts counts as progress", "[launch][restart_backoff]") {
  RestartBackoff backoff([] { return 0.5; });
  CHECK(backoff.next(did_step(8)) == 0s);
  CHECK(backoff.next(did_step(8)) == 1s);   // the same steps again
  CHECK(backoff.next(run_time(1s)) == 2s);  // its file was cut to nothing
  CHECK(backoff.next(did_step(9)) == 0s);
  CHECK(backoff.next(did_step(9)) == 1s);
}
