#include "launch/supervisor/signal_deduplicator.hpp"

#include <catch2/catch.hpp>

using namespace std::chrono_literals;
using namespace dslaunch::launch;

namespace {

const int kNodes[2] = {};
constexpr SignalSource kHere = nullptr;
const SignalTime kStart{1000h};

}  // namespace

TEST_CASE("signals from one source at once count once, a later one counts again", "[launch][signal]") {
  InterruptDeduplicator arrivals;
  CHECK(arrivals.take(kHere, kStart));
  CHECK_FALSE(arrivals.take(kHere, kStart + 1ms));
  CHECK(arrivals.take(kHere, kStart + 200ms));
  CHECK_FALSE(arrivals.take(kHere, kStart + 201ms));
}

TEST_CASE("copies of a signal that wait in a late loop count once", "[launch][signal]") {
  InterruptDeduplicator arrivals;
  CHECK(arrivals.take(kHere, kStart));
  arrivals.handled(kHere, kStart + 900ms);
  CHECK_FALSE(arrivals.take(kHere, kStart + 901ms));
  CHECK(arrivals.take(kHere, kStart + 1100ms));
}

TEST_CASE("a signal to all nodes is one, and the next one to all is the next", "[launch][signal]") {
  InterruptDeduplicator arrivals;
  for (auto round = kStart; round <= kStart + 20s; round += 10s) {
    CHECK(arrivals.take(&kNodes[1], round));
    CHECK_FALSE(arrivals.take(kHere, round + 3ms));
    CHECK_FALSE(arrivals.take(&kNodes[0], round + 700ms));
    CHECK_FALSE(arrivals.take(&kNodes[0], round + 710ms));
  }
}

TEST_CASE("a signal from another source some time later counts again", "[launch][signal]") {
  InterruptDeduplicator arrivals;
  CHECK(arrivals.take(&kNodes[1], kStart));
  CHECK(arrivals.take(kHere, kStart + 3s));
  CHECK_FALSE(arrivals.take(&kNodes[1], kStart + 3s + 5ms));
}

TEST_CASE("user signals from one source count each time, sent to all nodes they count once", "[launch][signal]") {
  UserSignalDeduplicator arrivals;
  for (int i = 0; i < 10; ++i) CHECK(arrivals.take(kHere, kStart + i * 1ms));
  for (int i = 0; i < 10; ++i) {
    CHECK_FALSE(arrivals.take(&kNodes[0], kStart + 20ms + i * 1ms));
    CHECK_FALSE(arrivals.take(&kNodes[1], kStart + 20ms + i * 1ms));
  }
  CHECK(arrivals.take(&kNodes[0], kStart + 40ms));
  CHECK_FALSE(arrivals.take(kHere, kStart + 41ms));
  CHECK(arrivals.take(&kNodes[1], kStart + 10s));
}
