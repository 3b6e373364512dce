#include "base/deadline.hpp"

#include <catch2/catch.hpp>

using dslaunch::Deadline;
using namespace std::chrono_literals;

TEST_CASE("a deadline that is days away is as far for those who ask once", "[base][deadline]") {
  const auto deadline = Deadline::after(72h);
  CHECK(deadline.left() > 71h);
  CHECK(deadline.left() <= 72h);
  CHECK(deadline.poll_timeout() == 24 * 3600 * 1000);  // an int holds less than a month
  CHECK(Deadline::after(10'000 * 24h).poll_timeout() == 24 * 3600 * 1000);
}

TEST_CASE("a deadline that never comes can be put off", "[base][deadline]") {
  const auto later = Deadline::after(Deadline::never().left() + 1min);
  CHECK_FALSE(later.passed());
  CHECK(later.left() > 10'000 * 24h);
  CHECK(Deadline::never().poll_timeout() == -1);
}

TEST_CASE("a deadline that has passed leaves nothing", "[base][deadline]") {
  const auto deadline = Deadline::after(-1h);
  CHECK(deadline.passed());
  CHECK(deadline.left() == 0ms);
  CHECK(deadline.poll_timeout() == 0);
}
