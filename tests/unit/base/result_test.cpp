#include "base/result.hpp"

#include <catch2/catch.hpp>
#include <memory>

using dslaunch::Failure;
using dslaunch::Result;

namespace {

struct Position {
  std::string message;
  size_t offset = 0;
};

Result<> require_even(int number) {
  if (number % 2 == 0) return {};
  return Failure{"it is odd"};
}

Result<int> half(int number) {
  if (const Result<> even = require_even(number); !even.ok()) return Failure{even.error()};
  return number / 2;
}

Result<std::unique_ptr<int>, Position> parse(const std::string& text) {
  if (text.empty()) return Failure{Position{"nothing to parse", 7}};
  return std::make_unique<int>(static_cast<int>(text.size()));
}

}  // namespace

TEST_CASE("a result without a value is a success or an error", "[base][result]") {
  CHECK(require_even(2).ok());
  REQUIRE_FALSE(require_even(3).ok());
  CHECK(require_even(3).error() == "it is odd");
}

TEST_CASE("an error may be an empty text and is still an error", "[base][result]") {
  const Result<> silent = Failure{""};
  CHECK_FALSE(silent.ok());
  const Result<std::string> text = Failure{""};
  CHECK_FALSE(text.ok());
  CHECK(Result<std::string>("").ok());
}

TEST_CASE("a result holds either its value or its error", "[base][result]") {
  REQUIRE(half(8).ok());
  CHECK(*half(8) == 4);
  REQUIRE_FALSE(half(7).ok());
  CHECK(half(7).error() == "it is odd");
}

TEST_CASE("values that cannot be copied are moved out, and errors may have more than a text", "[base][result]") {
  auto parsed = parse("abc");
  REQUIRE(parsed.ok());
  const std::unique_ptr<int> value = *std::move(parsed);
  CHECK(*value == 3);
  REQUIRE_FALSE(parse("").ok());
  CHECK(parse("").error().offset == 7);
}

TEST_CASE("asking a failure for its value, or a success for its error, throws", "[base][result]") {
  CHECK_THROWS(*half(7));
  CHECK_THROWS(half(8).error());
  CHECK_THROWS(require_even(2).error());
}
