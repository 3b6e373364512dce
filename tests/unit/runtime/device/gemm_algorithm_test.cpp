#include "runtime/device/gemm_algorithm.hpp"

#include <catch2/catch.hpp>
#include <vector>

using namespace dslaunch::runtime::device;

namespace {

constexpr double kShare = 0.985;

// A device whose clock falls by a thousandth with every measurement.
struct SlowingDevice {
  std::vector<double> microseconds;  // at the first clock
  std::vector<int> calls = std::vector<int>(microseconds.size());
  double slowdown = 1;

  size_t choose() {
    return choose_fastest(microseconds.size(), /*rounds=*/8, kShare, [&](const std::vector<size_t>& turns) {
      std::vector<double> out;
      for (const size_t candidate : turns) {
        calls[candidate] += 1;
        slowdown *= 1.001;
        out.push_back(microseconds[candidate] * slowdown);
      }
      return out;
    });
  }
};

}  // namespace

TEST_CASE("the fastest candidate is chosen while the clock falls", "[runtime][device]") {
  CHECK(SlowingDevice{{100, 105, 95, 99}}.choose() == 2);
  CHECK(SlowingDevice{{100, 105, 99, 95}}.choose() == 3);
  CHECK(SlowingDevice{{100}}.choose() == 0);
}

TEST_CASE("the first candidate stays for a gain that may be noise", "[runtime][device]") {
  CHECK(SlowingDevice{{100, 99, 120}}.choose() == 0);
  CHECK(SlowingDevice{{100, 98, 120}}.choose() == 1);
}

TEST_CASE("slow candidates drop out, the first one stays for comparison", "[runtime][device]") {
  SlowingDevice device{{200, 100, 102, 150}};
  CHECK(device.choose() == 1);
  CHECK(device.calls[3] < device.calls[2]);
  CHECK(device.calls[0] == device.calls[1]);
}

TEST_CASE("a choice is read as it was written", "[runtime][device]") {
  const Choice algorithm = Algorithm{{1, 2, 0xFFFF'FFFF'FFFF'FFFF, 4, 5, 6, 7, 0x8000'0000'0000'0000}, 1 << 20};
  const auto read = choice_of(to_text(algorithm));
  REQUIRE(read.has_value());
  CHECK(*read == algorithm);
  const auto of_pytorch = choice_of(to_text(std::nullopt));
  REQUIRE(of_pytorch.has_value());
  CHECK_FALSE(of_pytorch->has_value());
  for (const char* text : {"", "pytorc", "pytorch ", "1 2 3"}) CHECK_FALSE(choice_of(text).has_value());
  CHECK_FALSE(choice_of(to_text(algorithm) + " ").has_value());
  CHECK_FALSE(choice_of(to_text(algorithm).substr(1)).has_value());
}
