#include "runtime/sharding/collective_order.hpp"

#include <catch2/catch.hpp>
#include <thread>

#include "support/thread_communicator.hpp"

using namespace dslaunch;
using namespace dslaunch::runtime;
using Pass = CollectiveOrder::Pass;

namespace {

constexpr UnitEvent forward(int unit) {
  return {UnitEvent::Kind::kForward, unit};
}

CollectiveOrder::Options options_of(std::vector<UnitEvent>& served, std::vector<std::string>& met) {
  CollectiveOrder::Options out;
  out.unit_names = {"", "a", "b", "c"};
  out.participate = [&](UnitEvent event) { served.push_back(event); };
  out.barrier = [&](const std::string& text) { met.push_back(text); };
  return out;
}

void pass(CollectiveOrder& collective_order, const std::vector<int>& units, Pass kind = Pass::kTraining) {
  collective_order.begin_pass(kind);
  for (int unit : units) collective_order.arrive(forward(unit));
  collective_order.end_pass();
}

// Two ranks at once, each with passes of its own; returns what each one served.
std::vector<std::vector<UnitEvent>> as_two_ranks(const std::vector<std::vector<std::vector<int>>>& passes_of_rank) {
  auto group = std::make_shared<test::ThreadGroup>(2);
  std::vector<std::vector<UnitEvent>> served(2);
  std::vector<std::thread> threads;
  for (int rank = 0; rank < 2; ++rank) {
    threads.emplace_back([&, rank] {
      test::ThreadCommunicator communicator(group, rank);
      std::vector<std::string> met;
      CollectiveOrder collective_order(communicator, options_of(served[rank], met));
      for (const auto& units : passes_of_rank[rank]) pass(collective_order, units);
    });
  }
  for (auto& thread : threads) thread.join();
  return served;
}

}  // namespace

TEST_CASE("what a pass leaves out of the recorded order is served in passing and at its end",
          "[runtime][sharding][collective_order]") {
  test::ThreadCommunicator alone(std::make_shared<test::ThreadGroup>(1), 0);
  std::vector<UnitEvent> served;
  std::vector<std::string> met;
  CollectiveOrder collective_order(alone, options_of(served, met));
  pass(collective_order, {1, 2, 3, 1});
  CHECK(served.empty());
  pass(collective_order, {1, 3});
  CHECK((served == std::vector<UnitEvent>{forward(2), forward(1)}));
  CHECK(met.empty());
}

TEST_CASE("training and inference have orders of their own", "[runtime][sharding][collective_order]") {
  test::ThreadCommunicator alone(std::make_shared<test::ThreadGroup>(1), 0);
  std::vector<UnitEvent> served;
  std::vector<std::string> met;
  CollectiveOrder collective_order(alone, options_of(served, met));
  pass(collective_order, {1, 2});
  pass(collective_order, {3}, Pass::kInference);
  CHECK(served.empty());
  pass(collective_order, {}, Pass::kInference);
  CHECK((served == std::vector<UnitEvent>{forward(3)}));
}

TEST_CASE("other ranks may follow until the record says that none does", "[runtime][sharding][collective_order]") {
  auto group = std::make_shared<test::ThreadGroup>(2);
  std::vector<std::thread> threads;
  std::vector<std::vector<bool>> may_follow(2);  // by rank: after each event
  for (int rank = 0; rank < 2; ++rank) {
    threads.emplace_back([&, rank] {
      test::ThreadCommunicator communicator(group, rank);
      std::vector<UnitEvent> served;
      std::vector<std::string> met;
      CollectiveOrder collective_order(communicator, options_of(served, met));
      for (int repeat = 0; repeat < 2; ++repeat) {
        collective_order.begin_pass(Pass::kTraining);
        for (int unit : {1, 2, 1}) {
          collective_order.arrive(forward(unit));
          may_follow[rank].push_back(collective_order.may_follow(forward(unit)));
        }
        collective_order.end_pass();
      }
    });
  }
  for (auto& thread : threads) thread.join();
  for (const auto& seen : may_follow) CHECK(seen == std::vector<bool>{true, true, true, true, false, false});
}

TEST_CASE("ranks that differ in the first pass participate each other's events, and go on agreeing",
          "[runtime][sharding][collective_order]") {
  const auto served = as_two_ranks({{{1, 2}, {2}, {3, 3, 3}}, {{1, 3}, {1, 2}, {3}}});
  CHECK((served[0] == std::vector<UnitEvent>{forward(3), forward(1)}));
  CHECK((served[1] == std::vector<UnitEvent>{forward(2), forward(3), forward(3)}));
}

TEST_CASE("a rank whose first pass ends early serves the rest of the others'",
          "[runtime][sharding][collective_order]") {
  const auto served = as_two_ranks({{{1, 2, 3}}, {{1}}});
  CHECK(served[0].empty());
  CHECK((served[1] == std::vector<UnitEvent>{forward(2), forward(3)}));
}

TEST_CASE("an event that is not in the order meets the other ranks first", "[runtime][sharding][collective_order]") {
  auto group = std::make_shared<test::ThreadGroup>(2);
  std::vector<std::thread> threads;
  std::vector<std::vector<std::string>> met(2);
  for (int rank = 0; rank < 2; ++rank) {
    threads.emplace_back([&, rank] {
      test::ThreadCommunicator communicator(group, rank);
      std::vector<UnitEvent> served;
      CollectiveOrder collective_order(communicator, options_of(served, met[rank]));
      pass(collective_order, {1, 2});
      pass(collective_order, {1, 3, 2});
      pass(collective_order, {1, 3, 2});
    });
  }
  for (auto& thread : threads) thread.join();
  CHECK(met[0] == std::vector<std::string>{"forward of unit 'c', place 2"});
  CHECK(met[0] == met[1]);
}
