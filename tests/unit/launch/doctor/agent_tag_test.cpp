#include "launch/process/agent_tag.hpp"

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <catch2/catch.hpp>

using namespace dslaunch;
using namespace dslaunch::launch;

static ports::ProcessInfo rank_with(const std::string& mark) {
  ports::ProcessInfo info;
  info.job_id = "job-1";
  info.agent_tag = mark;
  return info;
}

TEST_CASE("a job is alive while the agent named by its ranks is alive", "[launch][doctor]") {
  int ready[2];
  REQUIRE(pipe(ready) == 0);
  pid_t agent = fork();
  if (agent == 0) {
    std::string mark = own_agent_tag();
    if (write(ready[1], mark.data(), mark.size()) < 0) _exit(1);
    pause();
    _exit(0);
  }
  char text[128] = {};
  REQUIRE(read(ready[0], text, sizeof text - 1) > 0);
  CHECK(job_life(rank_with(text)) == JobLife::kAlive);
  kill(agent, SIGKILL);
  siginfo_t ended;
  REQUIRE(waitid(P_PID, static_cast<id_t>(agent), &ended, WEXITED | WNOWAIT) == 0);
  CHECK(job_life(rank_with(text)) == JobLife::kGone);  // a zombie launches nothing
  waitpid(agent, nullptr, 0);
  CHECK(job_life(rank_with(text)) == JobLife::kGone);
  close(ready[0]);
  close(ready[1]);
}

TEST_CASE("a later process with the agent's pid is not the agent", "[launch][doctor]") {
  auto self = ports::read_process(getpid());
  std::string mark = own_agent_tag();
  std::string space = mark.substr(mark.rfind(':'));
  CHECK(job_life(rank_with(mark)) == JobLife::kAlive);
  CHECK(job_life(rank_with(std::to_string(getpid()) + ":" + std::to_string(self->identity.start_ticks + 1) + space)) ==
        JobLife::kGone);
}

TEST_CASE("an agent of another pid namespace, or none, is unknown", "[launch][doctor]") {
  std::string mark = own_agent_tag();
  CHECK(job_life(rank_with(mark.substr(0, mark.rfind(':')) + ":1")) == JobLife::kUnknown);
  for (const char* text : {"", "1", "1:2", "1:2:", "a:b:c", "1:2:3:4", ":::"}) {
    CAPTURE(text);
    CHECK(job_life(rank_with(text)) == JobLife::kUnknown);
  }
  auto none = rank_with(mark);
  none.job_id.clear();
  CHECK(job_life(none) == JobLife::kNone);
}
