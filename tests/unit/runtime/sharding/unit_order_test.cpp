#include "runtime/sharding/unit_order.hpp"

#include <catch2/catch.hpp>

using namespace dslaunch::runtime;

namespace {
constexpr UnitEvent forward(int unit) {
  return {UnitEvent::Kind::kForward, unit};
}
constexpr UnitEvent reduce(int unit) {
  return {UnitEvent::Kind::kReduce, unit};
}
}  // namespace

TEST_CASE("the first pass is recorded and the next one finds it ahead", "[runtime][sharding][unit_order]") {
  UnitOrder order;
  order.begin_pass();
  CHECK(order.is_recording());
  for (auto event : {forward(1), forward(2), reduce(2)}) {
    CHECK_FALSE(order.is_ahead(event));
    order.insert(event);
    CHECK(order.ahead().empty());
  }
  order.end_pass();
  order.begin_pass();
  CHECK_FALSE(order.is_recording());
  CHECK(order.ahead().size() == 3);
  CHECK(order.advance() == forward(1));
  CHECK(order.is_ahead(reduce(2)));
  CHECK_FALSE(order.is_ahead(forward(1)));
}

TEST_CASE("an event that is new takes its place where it came", "[runtime][sharding][unit_order]") {
  UnitOrder order;
  order.begin_pass();
  order.insert(forward(1));
  order.insert(forward(3));
  order.end_pass();
  order.begin_pass();
  order.advance();
  order.insert(forward(2));
  CHECK(order.position() == 2);
  CHECK(order.ahead().front() == forward(3));
}

TEST_CASE("a recording that broke off is forgotten", "[runtime][sharding][unit_order]") {
  UnitOrder order;
  order.begin_pass();
  order.insert(forward(1));
  order.begin_pass();
  CHECK(order.ahead().empty());
}
