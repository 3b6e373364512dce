#include "runtime/sharding/lock_step.hpp"

#include <catch2/catch.hpp>
#include <thread>

#include "base/error.hpp"
#include "support/thread_communicator.hpp"

using namespace dslaunch;
using namespace dslaunch::runtime;
using Pass = LockStep::Pass;

namespace {

constexpr UnitEvent forward(int unit) {
  return {UnitEvent::Kind::kForward, unit};
}

LockStep::Options options_of(std::vector<UnitEvent>& served, std::vector<std::string>& met) {
  LockStep::Options out;
  out.unit_names = {"", "a", "b", "c"};
  out.serve = [&](UnitEvent event) { served.push_back(event); };
  out.meet = [&](const std::string& text) { met.push_back(text); };
  return out;
}

void pass(LockStep& lock_step, const std::vector<int>& units, Pass kind = Pass::kTraining) {
  lock_step.begin_pass(kind);
  for (int unit : units) lock_step.arrive(forward(unit));
  lock_step.end_pass();
}

// Runs `work` as two ranks at once; what a rank throws comes back as text.
std::vector<std::string> as_two_ranks(const std::function<void(int rank, LockStep&)>& work) {
  auto group = std::make_shared<test::ThreadGroup>(2);
  std::vector<std::string> errors(2);
  std::vector<std::thread> threads;
  for (int rank = 0; rank < 2; ++rank) {
    threads.emplace_back([&, rank] {
      test::ThreadCommunicator communicator(group, rank);
      std::vector<UnitEvent> served;
      std::vector<std::string> met;
      LockStep lock_step(communicator, options_of(served, met));
      try {
        work(rank, lock_step);
      } catch (const UserError& error) {
        errors[rank] = error.what();
      }
    });
  }
  for (auto& thread : threads) thread.join();
  return errors;
}

}  // namespace

TEST_CASE("what a pass leaves out of the recorded order is served in passing and at its end",
          "[runtime][sharding][lock_step]") {
  test::ThreadCommunicator alone(std::make_shared<test::ThreadGroup>(1), 0);
  std::vector<UnitEvent> served;
  std::vector<std::string> met;
  LockStep lock_step(alone, options_of(served, met));
  pass(lock_step, {1, 2, 3, 1});
  CHECK(served.empty());
  pass(lock_step, {1, 3});
  CHECK((served == std::vector<UnitEvent>{forward(2), forward(1)}));
  CHECK(met.empty());
}

TEST_CASE("training and inference have orders of their own", "[runtime][sharding][lock_step]") {
  test::ThreadCommunicator alone(std::make_shared<test::ThreadGroup>(1), 0);
  std::vector<UnitEvent> served;
  std::vector<std::string> met;
  LockStep lock_step(alone, options_of(served, met));
  pass(lock_step, {1, 2});
  pass(lock_step, {3}, Pass::kInference);
  CHECK(served.empty());
  pass(lock_step, {}, Pass::kInference);
  CHECK((served == std::vector<UnitEvent>{forward(3)}));
}

TEST_CASE("ranks that differ in the first pass are told who does what", "[runtime][sharding][lock_step]") {
  const auto errors = as_two_ranks([](int rank, LockStep& lock_step) { pass(lock_step, {1, rank == 0 ? 2 : 3}); });
  for (const auto& error : errors) {
    CHECK(error.find("rank 0: forward of unit 'b'") != std::string::npos);
    CHECK(error.find("rank 1: forward of unit 'c'") != std::string::npos);
  }
}

TEST_CASE("a rank whose first pass ends early is told so", "[runtime][sharding][lock_step]") {
  const auto errors = as_two_ranks([](int rank, LockStep& lock_step) {
    pass(lock_step, rank == 0 ? std::vector<int>{1, 2} : std::vector<int>{1});
  });
  CHECK(errors[0].find("rank 1: end of the pass") != std::string::npos);
}

TEST_CASE("an event that is not in the order meets the other ranks first", "[runtime][sharding][lock_step]") {
  auto group = std::make_shared<test::ThreadGroup>(2);
  std::vector<std::thread> threads;
  std::vector<std::vector<std::string>> met(2);
  for (int rank = 0; rank < 2; ++rank) {
    threads.emplace_back([&, rank] {
      test::ThreadCommunicator communicator(group, rank);
      std::vector<UnitEvent> served;
      LockStep lock_step(communicator, options_of(served, met[rank]));
      pass(lock_step, {1, 2});
      pass(lock_step, {1, 3, 2});
      pass(lock_step, {1, 3, 2});
    });
  }
  for (auto& thread : threads) thread.join();
  CHECK(met[0] == std::vector<std::string>{"forward of unit 'c', place 2"});
  CHECK(met[0] == met[1]);
}
