#include "launch/supervisor/job_lifecycle.hpp"

#include <catch2/catch.hpp>
#include <csignal>

using namespace std::chrono_literals;
using namespace dslaunch;
using namespace dslaunch::launch;

namespace {

constexpr SignalSource kHere = nullptr;
const int kNode = 0;
const JobLifecycle::Time kStart{1000h};

LaunchPlan plan_of(JobKind kind = JobKind::kRun) {
  LaunchPlan plan;
  plan.kind = kind;
  plan.grace = 30s;
  plan.timeout = 1500ms;
  return plan;
}

// A job whose ranks run.
JobLifecycle running(Deadline time_limit = Deadline::never(), JobKind kind = JobKind::kRun) {
  JobLifecycle course(plan_of(kind), time_limit);
  CHECK(course.handle_event(JobEvent::kAgentsReady, kStart).action == JobAction::kStartRanks);
  return course;
}

// Something is done, and the user hears of it.
bool is(const JobOrder& order, JobAction action, const std::string& part) {
  return order.action == action && order.message.find(part) != std::string::npos &&
         order.message.empty() == part.empty();
}

}  // namespace

TEST_CASE("Ctrl-C stops, a second one kills, a third one discards output", "[launch][job_lifecycle]") {
  JobLifecycle course = running();
  auto order = course.take_signal(SIGINT, kHere, kStart);
  REQUIRE(order);
  CHECK(is(*order, JobAction::kStop, "Ctrl-C again ends them at once"));
  CHECK((order->begins_end && order->grace == 30s));
  order = course.take_signal(SIGINT, kHere, kStart + 1s);
  REQUIRE(order);
  CHECK(is(*order, JobAction::kKill, "ending all ranks at once"));
  CHECK((!order->begins_end && order->grace == 0s && !course.discards_output()));
  order = course.take_signal(SIGINT, kHere, kStart + 2s);
  REQUIRE(order);
  CHECK(is(*order, JobAction::kNone, "ending all ranks at once"));
  CHECK(course.discards_output());
  CHECK(course.reason() == StopReason::kInterrupt);
}

TEST_CASE("copies of one Ctrl-C count once, from when it was handled", "[launch][job_lifecycle]") {
  JobLifecycle course = running();
  CHECK(course.take_signal(SIGINT, kHere, kStart));
  course.signal_handled(SIGINT, kHere, kStart + 900ms);
  CHECK_FALSE(course.take_signal(SIGINT, kHere, kStart + 901ms));
  CHECK(course.state() == JobState::kStopping);
}

TEST_CASE("a signal to an agent and to the launcher counts once", "[launch][job_lifecycle]") {
  JobLifecycle course = running();
  CHECK(course.agent_failed(&kNode, 75, kStart).action == JobAction::kStop);
  CHECK_FALSE(course.take_signal(SIGINT, kHere, kStart + 500ms));
  CHECK(course.state() == JobState::kStopping);
  CHECK(course.agent_error() == 75);
}

TEST_CASE("a host that is lost while the job ends is its cause if ranks only lost a peer", "[launch][job_lifecycle]") {
  JobLifecycle course = running();
  CHECK(course.handle_event(JobEvent::kRankLostPeer, kStart).action == JobAction::kAwaitRootCause);
  REQUIRE(course.due(kStart + 600ms));
  CHECK(course.state() == JobState::kStopping);
  SECTION("of a host that falls silent") {
    course.record_agent_error(69);
    CHECK(course.agent_error() == 69);
  }
  SECTION("unless a rank turns out to have failed") {
    course.handle_event(JobEvent::kRankFailed, kStart + 700ms);
    course.record_agent_error(69);
    CHECK(course.agent_error() == 0);
  }
}

TEST_CASE("a host that is lost while a failed rank ends the job is not its cause", "[launch][job_lifecycle]") {
  JobLifecycle course = running();
  course.handle_event(JobEvent::kRankLostPeer, kStart);
  CHECK(course.handle_event(JobEvent::kRankFailed, kStart + 100ms).action == JobAction::kStop);
  course.due(kStart + 600ms);  // the wait for a root cause is over, which has come
  course.record_agent_error(69);
  CHECK(course.agent_error() == 0);
}

TEST_CASE("SIGTERM stops once, SIGQUIT and 'stop --now' end at once", "[launch][job_lifecycle]") {
  JobLifecycle course = running();
  CHECK(is(*course.take_signal(SIGTERM, kHere, kStart), JobAction::kStop, "SIGTERM"));
  CHECK(is(*course.take_signal(SIGTERM, kHere, kStart), JobAction::kNone, ""));
  CHECK(is(*course.take_signal(SIGQUIT, kHere, kStart), JobAction::kKill, "SIGQUIT"));
  CHECK(course.reason() == StopReason::kTerminate);
  course = running();
  CHECK(is(course.take_stop({.now = true, .grace = {}}, kStart), JobAction::kKill, "stop --now"));
  CHECK(course.reason() == StopReason::kCommand);
}

TEST_CASE("'stop' may change the grace, also of a stop in progress", "[launch][job_lifecycle]") {
  JobLifecycle course = running();
  CHECK(course.take_stop({.now = false, .grace = 60s}, kStart).grace == 60s);
  CHECK(course.next_due().when() == kStart + 65s);
  CHECK(is(course.take_stop({}, kStart), JobAction::kNone, ""));
  const JobOrder shorter = course.take_stop({.now = false, .grace = 2s}, kStart + 1s);
  CHECK(is(shorter, JobAction::kStop, ""));
  CHECK(shorter.grace == 2s);
  CHECK(course.next_due().when() == kStart + 8s);
}

TEST_CASE("the first cause is the reason, a request after a failure is late", "[launch][job_lifecycle]") {
  JobLifecycle course = running();
  CHECK(course.handle_event(JobEvent::kRankFailed, kStart).begins_end);
  CHECK(is(*course.take_signal(SIGTERM, kHere, kStart), JobAction::kNone, ""));
  CHECK(is(*course.take_signal(SIGINT, kHere, kStart), JobAction::kKill, "at once"));
  CHECK(course.reason() == StopReason::kNone);
  CHECK(course.late_reason() == StopReason::kTerminate);
}

TEST_CASE("agent errors after the end has begun are not recorded", "[launch][job_lifecycle]") {
  JobLifecycle course = running();
  course.record_agent_error(69);
  course.record_agent_error(70);
  CHECK(course.agent_error() == 69);
  course = running();
  course.handle_event(JobEvent::kRankFailed, kStart);
  course.record_agent_error(69);
  CHECK(course.agent_error() == 0);
}

TEST_CASE("each deadline takes effect once", "[launch][job_lifecycle]") {
  JobLifecycle course = running(Deadline::at(kStart + 10s));
  CHECK_FALSE(course.due(kStart + 9s));
  CHECK(course.next_due().when() == kStart + 10s);
  const auto order = course.due(kStart + 10s);
  REQUIRE(order);
  CHECK(is(*order, JobAction::kStop, "the time limit of 1.5 s has passed"));
  CHECK_FALSE(course.due(kStart + 44s));
  CHECK(course.due(kStart + 45s)->action == JobAction::kKill);  // the grace, and what an agent needs
  CHECK_FALSE(course.due(kStart + 49s));
  CHECK(course.due(kStart + 50s)->action == JobAction::kAbandon);
  CHECK(course.next_due().is_never());
  CHECK(course.reason() == StopReason::kTimeLimit);
}

TEST_CASE("a lost peer waits briefly for the root cause", "[launch][job_lifecycle]") {
  JobLifecycle course = running();
  CHECK(course.handle_event(JobEvent::kRankLostPeer, kStart).action == JobAction::kAwaitRootCause);
  CHECK(course.end_not_begun());
  CHECK_FALSE(course.due(kStart + 499ms));
  CHECK(course.due(kStart + 500ms)->action == JobAction::kStop);
}

TEST_CASE("signals after the end affect only the next attempt", "[launch][job_lifecycle]") {
  JobLifecycle course = running(Deadline::never(), JobKind::kExec);
  course.handle_event(JobEvent::kAllDone, kStart);
  course.take_late_signal(SIGUSR1);
  CHECK((course.late_reason() == StopReason::kNone && !course.discards_output()));
  course.take_signal_in_pause(SIGUSR1);
  CHECK(course.late_reason() == StopReason::kNone);
  course.take_signal_in_pause(SIGINT);
  CHECK((course.late_reason() == StopReason::kInterrupt && !course.discards_output()));
  course.take_late_signal(SIGINT);
  course.take_late_signal(SIGTERM);
  CHECK((course.late_reason() == StopReason::kInterrupt && course.discards_output()));
  CHECK(course.reason() == StopReason::kNone);
}

TEST_CASE("output is discarded only on a new key press during the kill", "[launch][job_lifecycle]") {
  JobLifecycle course = running();
  course.take_stop({.now = true, .grace = {}}, kStart);
  CHECK(is(*course.take_signal(SIGTERM, kHere, kStart), JobAction::kNone, ""));
  CHECK(is(course.take_stop({.now = false, .grace = 2s}, kStart), JobAction::kNone, ""));
  CHECK_FALSE(course.discards_output());
  CHECK(course.take_signal(SIGQUIT, kHere, kStart));
  CHECK(course.discards_output());
  course = running();
  course.take_signal(SIGINT, kHere, kStart);
  course.take_signal(SIGINT, kHere, kStart + 1s);
  CHECK_FALSE(course.take_signal(SIGINT, kHere, kStart + 1010ms));  // of the press before
  CHECK_FALSE(course.discards_output());
}

TEST_CASE("a Ctrl-C right after a SIGTERM or an agent failure counts", "[launch][job_lifecycle]") {
  JobLifecycle course = running();
  course.take_signal(SIGTERM, kHere, kStart);
  course.signal_handled(SIGTERM, kHere, kStart);
  CHECK(course.take_signal(SIGINT, kHere, kStart + 1ms));  // 'stop --now' where no socket answers
  CHECK(course.state() == JobState::kKilling);
  CHECK(course.reason() == StopReason::kTerminate);
  CHECK(course.late_reason() == StopReason::kNone);
  course = running();
  course.agent_failed(&kNode, 69, kStart);
  CHECK(course.take_signal(SIGINT, kHere, kStart + 1ms));
}

TEST_CASE("an end before the ranks start has a reason too", "[launch][job_lifecycle]") {
  JobLifecycle course(plan_of(), Deadline::never());
  CHECK(course.take_signal(SIGINT, kHere, kStart)->begins_end);
  CHECK(course.reason() == StopReason::kInterrupt);
}

TEST_CASE("waits for the root cause; SIGUSR1 to a worker is a late reason", "[launch][job_lifecycle]") {
  JobLifecycle course = running();
  course.handle_event(JobEvent::kRankLostPeer, kStart);
  CHECK(course.next_due().when() == kStart + 500ms);
  course.take_late_signal(SIGUSR1);
  CHECK((course.late_reason() == StopReason::kTerminate && !course.discards_output()));
}
