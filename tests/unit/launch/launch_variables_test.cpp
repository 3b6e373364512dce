#include "launch/plan/launch_variables.hpp"

#include <catch2/catch.hpp>
#include <set>

#include "launch/plan/rank_environment.hpp"

using namespace dslaunch::launch;

TEST_CASE("variables of a surrounding launch are removed", "[launch][launch_variables]") {
  std::map<std::string, std::string> env{{"RANK", "3"},
                                         {"MASTER_PORT", "1"},
                                         {"TORCHELASTIC_RUN_ID", "x"},
                                         {"DSLAUNCH_JOB_ID", "outer"},
                                         {"DSLAUNCH_TOKEN", "t"},
                                         {"DSLAUNCH_AGENT", "1:2:3"},
                                         {"HOME", "/h"},
                                         {"DSLAUNCH_TORCH_LIB", "/torch"}};
  remove_launch_variables(env);
  CHECK(env == std::map<std::string, std::string>{{"HOME", "/h"}, {"DSLAUNCH_TORCH_LIB", "/torch"}});
}

TEST_CASE("every variable set for ranks is known as a launch variable", "[launch][launch_variables]") {
  JobDescription job;
  job.job_id = "job-1";
  job.token = std::vector<uint8_t>(32, 7);
  job.rank_hosts = {"a", "a"};
  job.ranks = {{0, 0, {"p"}, {{"CUDA_VISIBLE_DEVICES", "3"}}}};
  const std::set<std::string> of_the_user{"OMP_NUM_THREADS", "TORCH_NCCL_ASYNC_ERROR_HANDLING", "GLIBC_TUNABLES"};
  for (JobKind kind : {JobKind::kRun, JobKind::kExec}) {
    job.kind = kind;
    auto env = rank_environment(job, job.ranks[0], {.master_port = 1, .error_file = "e", .agent_tag = "1:2:3"});
    for (const auto& [name, value] : env) {
      CAPTURE(name);
      CHECK(instead_of_setting(name, true).empty() == of_the_user.contains(name));
    }
  }
  CHECK(instead_of_setting("CUDA_VISIBLE_DEVICES", false).empty());
  CHECK(instead_of_setting("TORCHELASTIC_ENABLE_FILE_TIMER", true).empty());
}
