#include "launch/jobs/job_states.hpp"

#include <algorithm>
#include <catch2/catch.hpp>
#include <string>
#include <vector>

using namespace dslaunch::launch;
using S = JobState;
using E = JobEvent;
using A = JobAction;

namespace {

// Where a sequence of events leads from the start, with what was done on the way.
std::pair<S, std::vector<A>> live(const std::vector<E>& events) {
  S state = S::kStarting;
  std::vector<A> actions;
  for (E event : events) {
    JobStep step = next_step(state, event);
    state = step.to;
    if (step.action != A::kNone) actions.push_back(step.action);
  }
  return {state, actions};
}

}  // namespace

TEST_CASE("a job that goes well is started and done", "[launch][job_states]") {
  CHECK(live({E::kAgentsReady, E::kAllDone}) == std::pair(S::kDone, std::vector{A::kStartRanks}));
}

TEST_CASE("the first failure stops all ranks and later ones change nothing", "[launch][job_states]") {
  auto [state, actions] = live({E::kAgentsReady, E::kRankFailed, E::kRankFailed, E::kRankLostPeer, E::kAllDone});
  CHECK(state == S::kDone);
  CHECK(actions == std::vector{A::kStartRanks, A::kStop});
}

TEST_CASE("a rank that lost a peer waits briefly for the root cause", "[launch][job_states]") {
  CHECK(live({E::kAgentsReady, E::kRankLostPeer}) ==
        std::pair(S::kAwaitingRootCause, std::vector{A::kStartRanks, A::kAwaitRootCause}));
  CHECK(live({E::kAgentsReady, E::kRankLostPeer, E::kRankFailed}).first == S::kStopping);
  CHECK(live({E::kAgentsReady, E::kRankLostPeer, E::kNoRootCause}).first == S::kStopping);
}

TEST_CASE("the first Ctrl-C stops and the second kills", "[launch][job_states]") {
  CHECK(live({E::kAgentsReady, E::kInterrupt}).second.back() == A::kStop);
  CHECK(live({E::kAgentsReady, E::kInterrupt, E::kInterrupt}) ==
        std::pair(S::kKilling, std::vector{A::kStartRanks, A::kStop, A::kKill}));
}

TEST_CASE("an immediate end needs one request", "[launch][job_states]") {
  for (const auto& before :
       {std::vector<E>{}, {E::kAgentsReady}, {E::kAgentsReady, E::kRankLostPeer}, {E::kTerminate}}) {
    auto events = before;
    events.push_back(E::kEndNow);
    auto [state, actions] = live(events);
    CHECK(state == S::kKilling);
    CHECK(actions.back() == A::kKill);
  }
}

TEST_CASE("a second SIGTERM does not shorten the time to save", "[launch][job_states]") {
  CHECK(live({E::kAgentsReady, E::kTerminate, E::kTerminate}).first == S::kStopping);
}

TEST_CASE("agents that do not finish in time are killed and then given up", "[launch][job_states]") {
  CHECK(live({E::kAgentsReady, E::kTimeLimit, E::kOverdue, E::kOverdue}) ==
        std::pair(S::kDone, std::vector{A::kStartRanks, A::kStop, A::kKill, A::kAbandon}));
}

TEST_CASE("ranks are never started after a failure", "[launch][job_states]") {
  for (E event : {E::kAgentFailed, E::kAgentLost, E::kInterrupt, E::kTerminate, E::kTimeLimit}) {
    auto [state, actions] = live({event, E::kAgentsReady});
    CHECK(state != S::kRunning);
    CHECK(std::find(actions.begin(), actions.end(), A::kStartRanks) == actions.end());
  }
}

TEST_CASE("every state but the last ends when all agents are done", "[launch][job_states]") {
  for (S state : {S::kStarting, S::kRunning, S::kAwaitingRootCause, S::kStopping, S::kKilling}) {
    CHECK(next_step(state, E::kAllDone).to == S::kDone);
    CHECK(std::string(name_of(state)) != "");
  }
  for (int event = 0; event <= static_cast<int>(E::kAllDone); ++event) {
    CHECK(next_step(S::kDone, static_cast<E>(event)).to == S::kDone);
  }
}

TEST_CASE("a lost agent ends the job in every state but the last", "[launch][job_states]") {
  for (S state : {S::kStarting, S::kRunning, S::kAwaitingRootCause, S::kStopping}) {
    CHECK(next_step(state, E::kAgentLost).action == A::kKill);
  }
}
