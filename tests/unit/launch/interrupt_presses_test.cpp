#include "launch/interrupt_presses.hpp"

#include <catch2/catch.hpp>

using namespace std::chrono_literals;
using dslaunch::launch::InterruptPresses;

namespace {

const int kNodes[2] = {};
constexpr InterruptPresses::Place kHere = nullptr;
const InterruptPresses::Time kStart{1000h};

}  // namespace

TEST_CASE("what arrives from one place at once is one press, later it is the next", "[launch][interrupt]") {
  InterruptPresses presses;
  CHECK(presses.take(kHere, kStart));
  CHECK_FALSE(presses.take(kHere, kStart + 1ms));
  CHECK(presses.take(kHere, kStart + 200ms));
  CHECK_FALSE(presses.take(kHere, kStart + 201ms));
}

TEST_CASE("a late loop finds the rest of a press waiting", "[launch][interrupt]") {
  InterruptPresses presses;
  CHECK(presses.take(kHere, kStart));
  presses.acted_upon(kHere, kStart + 900ms);
  CHECK_FALSE(presses.take(kHere, kStart + 901ms));
  CHECK(presses.take(kHere, kStart + 1100ms));
}

TEST_CASE("a signal to all nodes is one press, and the next one to all is the next", "[launch][interrupt]") {
  InterruptPresses presses;
  for (auto round = kStart; round <= kStart + 20s; round += 10s) {
    CHECK(presses.take(&kNodes[1], round));
    CHECK_FALSE(presses.take(kHere, round + 3ms));
    CHECK_FALSE(presses.take(&kNodes[0], round + 700ms));
    CHECK_FALSE(presses.take(&kNodes[0], round + 710ms));
  }
}

TEST_CASE("a press at another place a while later is one of its own", "[launch][interrupt]") {
  InterruptPresses presses;
  CHECK(presses.take(&kNodes[1], kStart));
  CHECK(presses.take(kHere, kStart + 3s));
  CHECK_FALSE(presses.take(&kNodes[1], kStart + 3s + 5ms));
}
