#include "launch/doctor/job_liveness.hpp"

#include <unistd.h>

#include <catch2/catch.hpp>

#include "launch/records/private_files.hpp"
#include "support/temp_dir.hpp"

using namespace dslaunch;
using namespace dslaunch::launch;
using Catch::Contains;

namespace {

constexpr const char* kJob = "20260131-174502-4711-c0de";

// This process stands for an agent that lives; with another start it is one that is gone.
ports::ProcessInfo rank_of_agent(bool alive) {
  ports::ProcessInfo rank;
  rank.identity = {99999, 5};
  rank.job_id = kJob;
  const std::string mark = own_agent_tag();
  rank.agent_tag = alive ? mark : std::to_string(::getpid()) + ":1" + mark.substr(mark.rfind(':'));
  return rank;
}

ProcessOnHost gone() {
  ProcessOnHost supervisor = this_process();
  ++supervisor.start_ticks;
  return supervisor;
}

ProcessOnHost elsewhere() {
  ProcessOnHost supervisor = this_process();
  supervisor.host = "another.invalid";
  return supervisor;
}

void put(const std::string& root, const ProcessOnHost& supervisor) {
  JobRecord record;
  record.job_id = kJob;
  record.command = {"true"};
  record.hosts = {{"localhost", 1}};
  record.supervisor = supervisor;
  record.state = "running";
  make_private_dir(root + "/" + kJob);
  write_private_file(root + "/" + kJob + "/job.json", record_to_json(record));
}

}  // namespace

TEST_CASE("a job is alive while its recorded supervisor, or else its agent, is alive", "[launch][doctor]") {
  struct Row {
    std::optional<ProcessOnHost> supervisor;
    bool agent_lives;
    JobLife life;
    const char* says;
  };
  const Row rows[] = {
      {this_process(), true, JobLife::kAlive, "is running: its supervisor"},
      {this_process(), false, JobLife::kAlive, "is running: its supervisor"},
      {gone(), true, JobLife::kGone, "the supervisor of its job"},  // the agent is stopped, or about to end its ranks
      {gone(), false, JobLife::kGone, "the supervisor of its job"},
      {elsewhere(), true, JobLife::kAlive, "is running: its agent is alive"},
      {elsewhere(), false, JobLife::kGone, "the agent of its job"},
      {std::nullopt, true, JobLife::kAlive, "is running: its agent is alive"},
      {std::nullopt, false, JobLife::kGone, "the agent of its job"},
  };
  for (const auto& row : rows) {
    CAPTURE(row.says, row.agent_lives);
    test::TempDir root;
    if (row.supervisor) put(root.path(), *row.supervisor);
    const auto rank = rank_of_agent(row.agent_lives);
    const JobLiveness liveness = JobRegister(root.path(), {rank}).liveness_of(rank);
    CHECK(liveness.life == row.life);
    CHECK(liveness.job_id == kJob);
    CHECK_THAT(liveness.evidence, Contains(row.says));
  }
}

TEST_CASE("a lost job of another host is known only from that host", "[launch][doctor]") {
  const auto rank = rank_of_agent(true);
  test::TempDir root;
  auto liveness = [&](const char* lost) { return JobRegister(root.path(), {rank}, {lost}).liveness_of(rank); };
  CHECK(liveness("another").life == JobLife::kAlive);
  CHECK(liveness(kJob).life == JobLife::kGone);
  CHECK_THAT(liveness(kJob).evidence, Contains("on another host, has exited"));
  put(root.path(), elsewhere());
  CHECK(liveness(kJob).life == JobLife::kGone);
  CHECK(jobs_without_supervisor(root.path()).empty());
  put(root.path(), this_process());
  CHECK(liveness(kJob).life == JobLife::kAlive);
  CHECK(jobs_without_supervisor(root.path()).empty());
  put(root.path(), gone());
  CHECK(jobs_without_supervisor(root.path()) == std::vector<std::string>{kJob});
}

TEST_CASE("agents belong to the job of the ranks that name them, supervisors to that of their record",
          "[launch][doctor]") {
  test::TempDir root;
  const auto self = ports::read_process(::getpid());  // the agent, and the supervisor
  put(root.path(), gone());
  CHECK(JobRegister(root.path(), {rank_of_agent(true)}).liveness_of(*self).life == JobLife::kGone);
  CHECK(JobRegister(root.path(), {}).liveness_of(*self).life == JobLife::kNone);
  put(root.path(), this_process());
  CHECK(JobRegister(root.path(), {}).liveness_of(*self).life == JobLife::kAlive);
}

TEST_CASE("an unknown job is neither alive nor lost", "[launch][doctor]") {
  test::TempDir root;
  auto rank = rank_of_agent(true);
  rank.agent_tag.clear();
  CHECK(JobRegister(root.path(), {rank}).liveness_of(rank).life == JobLife::kUnknown);
  rank.job_id.clear();
  CHECK(JobRegister(root.path(), {rank}).liveness_of(rank).life == JobLife::kNone);
}
