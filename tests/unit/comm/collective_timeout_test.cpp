#include "comm/collective_timeout.hpp"

#include <catch2/catch.hpp>
#include <limits>

#include "support/message_log.hpp"

using dslaunch::comm::CollectiveTimeout;
using dslaunch::test::MessageLog;
using namespace std::chrono_literals;

TEST_CASE("the oldest operation that does not end is named, once it is late", "[comm][collective_timeout]") {
  std::atomic<uint32_t> first{0}, second{0};
  MessageLog heard;
  CollectiveTimeout watch(100ms, [&](const std::string& message) { heard.add(message); });
  watch.add(&first, 1, 1, "all_reduce of the first");
  first = 1;
  watch.add(&second, 1, 1, "all_gather of the second");
  watch.add(&first, 2, 1, "all_reduce of the third");
  const auto message = heard.within(20s);
  REQUIRE(message);
  CHECK_THAT(*message, Catch::Contains("all_gather of the second did not end within 0.1 s"));
  CHECK(watch.message() == message);
}

TEST_CASE("what has ended is not late, also where counting wraps", "[comm][collective_timeout]") {
  std::atomic<uint32_t> counter{std::numeric_limits<uint32_t>::max() - 1};
  MessageLog heard;
  CollectiveTimeout watch(40ms, [&](const std::string& message) { heard.add(message); });
  watch.add(&counter, std::numeric_limits<uint32_t>::max(), 1, "the last before the wrap");
  watch.add(&counter, 0, 1, "the first behind it");
  counter = 0;
  CHECK_FALSE(heard.within(200ms));
  CHECK_FALSE(watch.message());
}

TEST_CASE("a watch with work under way can be ended", "[comm][collective_timeout]") {
  std::atomic<uint32_t> counter{0};
  CollectiveTimeout watch(1h, [](const std::string&) {});
  watch.add(&counter, 1, 1, "all_reduce");
}

TEST_CASE("an operation's time begins when the one before it in its queue has ended", "[comm][collective_timeout]") {
  std::atomic<uint32_t> one{0}, other{0};
  CollectiveTimeout watch(1h, [](const std::string&) {});
  watch.add(&one, 1, 1, "first of one");
  watch.add(&one, 2, 2, "second of one");
  watch.add(&one, 3, 3, "third of one");
  watch.add(&other, 1, 4, "first of the other");
  REQUIRE(watch.oldest());
  CHECK(watch.oldest()->what == "first of one");
  one = 1;
  CHECK(watch.oldest()->what == "first of the other");  // which waits since before that
  other = 1;
  const auto before = std::chrono::steady_clock::now();
  one = 2;
  REQUIRE(watch.oldest());
  CHECK(watch.oldest()->what == "third of one");
  CHECK(watch.oldest()->since >= before);
  one = 3;
  CHECK_FALSE(watch.oldest());
}
