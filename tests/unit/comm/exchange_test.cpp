// Exchanges between members that are threads: the contract, without a backend; and their descriptions.
#include <catch2/catch.hpp>
#include <string>
#include <vector>

#include "base/error.hpp"
#include "comm/collective.hpp"
#include "support/mesh_threads.hpp"
#include "unit/comm/communicator_contract.hpp"

using namespace dslaunch;
using namespace dslaunch::comm;

namespace {

constexpr auto kF32 = DType::kFloat32;

}  // namespace

TEST_CASE("threads exchange messages as the backends do", "[comm][exchange]") {
  for (const int size : {1, 2, 3, 4}) {
    std::vector<std::string> texts(static_cast<size_t>(size));
    test::run_mesh({.data = size}, [&](const Groups& groups) {
      test::HostMemory memory;
      auto& text = texts[static_cast<size_t>(groups.world.rank())];
      for (const DType dtype : {kF32, DType::kBFloat16, DType::kInt64, DType::kUInt8}) {
        for (const size_t count : {0, 1, 17}) text += test::check_exchanges({groups.world, memory, dtype, count});
      }
    });
    CHECK(texts == std::vector<std::string>(static_cast<size_t>(size)));
  }
}

TEST_CASE("an exchange ends when another member has failed", "[comm][exchange]") {
  float value = 0;
  CHECK_THROWS_WITH(test::run_mesh({.data = 2},
                                   [&](const Groups& groups) {
                                     if (groups.world.rank() == 0) throw UserError(ExitCode::kBadInput, "the cause");
                                     groups.world.receive({&value, 1, kF32}, 0);
                                   }),
                    "the cause");
}

TEST_CASE("an exchange is described by its messages, the first few of them", "[comm][exchange]") {
  float values[4] = {};
  const Buffer buffer{values, 4, kF32}, half{values, 2, DType::kBFloat16};
  const std::vector<Outgoing> sends{{buffer, 2}, {half, 2}, {buffer, 0}};
  const std::vector<Incoming> receives{{buffer, 0}, {half, 2}};
  const auto text = [](std::span<const Outgoing> out, std::span<const Incoming> in) {
    return describe_exchange(out, in, "pipe.1");
  };
  CHECK(text({sends.data(), 1}, {}) == "send of 4 float32 to member 2 in group 'pipe.1'");
  CHECK(text({}, {receives.data(), 1}) == "receive of 4 float32 from member 0 in group 'pipe.1'");
  CHECK(text({sends.data(), 1}, {receives.data(), 1}) ==
        "exchange (send of 4 float32 to member 2, receive of 4 float32 from member 0) in group 'pipe.1'");
  CHECK(text(sends, receives) ==
        "exchange (send of 4 float32 to member 2, send of 2 bfloat16 to member 2, send of 4 float32 to member 0, "
        "receive of 4 float32 from member 0, and 1 more) in group 'pipe.1'");
}

TEST_CASE("messages are counted for each pair and direction", "[comm][exchange]") {
  ExchangeCounter counter;
  CHECK(counter.count(0, 1) == Message{0, 1, 1});
  CHECK(counter.count(0, 1) == Message{0, 1, 2});
  CHECK(counter.count(1, 0) == Message{1, 0, 1});
  CHECK(counter.counts() == MessageCounts{{{0, 1}, 2}, {{1, 0}, 1}});
  CHECK(counter.next_exchange() == 1);
  CHECK(counter.next_exchange() == 2);
}

TEST_CASE("an exchange with oneself, with nobody or without memory is our bug, named", "[comm][exchange]") {
  float value = 0;
  const Buffer buffer{&value, 1, kF32}, nowhere{nullptr, 1, kF32};
  const auto check = [](Buffer buffer, int peer) {
    const Outgoing one{buffer, peer};
    check_exchange({&one, 1}, {}, 1, 3);
  };
  CHECK_NOTHROW(check(buffer, 2));
  CHECK_THROWS_AS(check(buffer, 1), InternalError);
  CHECK_THROWS_AS(check(buffer, 3), InternalError);
  CHECK_THROWS_AS(check(buffer, -1), InternalError);
  CHECK_THROWS_AS(check(nowhere, 2), InternalError);
}
