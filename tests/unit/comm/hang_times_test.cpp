#include "comm/hang_times.hpp"

#include <catch2/catch.hpp>

using namespace dslaunch::comm;
using namespace std::chrono_literals;
using std::chrono::milliseconds;

namespace {

using Ages = std::array<milliseconds, 3>;
constexpr milliseconds kNoStep{0};

}  // namespace

TEST_CASE("a wait is long after 20 s, five steps, or a quarter of the limit", "[comm][hang]") {
  const HangTimes usual(30min);
  CHECK(usual.report_threshold(kNoStep) == 20s);
  CHECK(usual.report_threshold(3s) == 20s);
  CHECK(usual.report_threshold(10s) == 50s);
  CHECK(usual.report_threshold(10min) == 450s);
  CHECK(HangTimes(8s).report_threshold(kNoStep) == 2s);
  CHECK(HangTimes(8s).report_threshold(10s) == 2s);
}

TEST_CASE("with the usual limit a rank that does not come is named in less than 30 s", "[comm][hang]") {
  const HangTimes usual(30min);
  const int ticks = 1 + 3;  // until the wait is seen to be long, and between the two looks at the other ranks
  CHECK(usual.report_threshold(kNoStep) + ticks * usual.check_interval < 27s);
}

TEST_CASE("a wait is reported again after 5 and 15 minutes, earlier with a short limit", "[comm][hang]") {
  CHECK(HangTimes(30min).report_ages(kNoStep) == Ages{20s, 5min, 15min});
  CHECK(HangTimes(8s).report_ages(kNoStep) == Ages{2s, 4s, 6s});
  CHECK(HangTimes(24h).report_ages(100s) == Ages{500s, 1000s, 1500s});
}

TEST_CASE("a wait's end has room behind the last report", "[comm][hang]") {
  CHECK(HangTimes(8s).backend_timeout == 13s);
  CHECK(HangTimes(30min).backend_timeout == 30min + 20s);
}

TEST_CASE("the usual step is the median of the newest", "[comm][hang]") {
  MedianTime steps;
  CHECK(steps.get() == 0ms);
  steps.add(60s);  // the first, with the set-up of libraries
  CHECK(steps.get() == 60s);
  steps.add(1s);
  steps.add(1s);
  CHECK(steps.get() == 1s);
  for (int i = 0; i < 200; ++i) steps.add(9s);
  CHECK(steps.get() == 9s);
}
