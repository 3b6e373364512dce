#include "launch/plan/rank_environment.hpp"

#include <catch2/catch.hpp>

using namespace dslaunch::launch;

static JobDescription two_ranks(JobKind kind) {
  JobDescription job;
  job.job_id = "job-1";
  job.kind = kind;
  job.token = std::vector<uint8_t>(32, 7);
  job.master_addr = "127.0.0.1";
  job.world_size = 2;
  job.host = "localhost";
  job.env = {{"PATH", "/bin"}, {"HOME", "/h"}};
  job.ranks = {{0, 0, {"p"}, {}}, {1, 1, {"p"}, {{"CUDA_VISIBLE_DEVICES", "3"}}}};
  return job;
}

TEST_CASE("a program gets all of torchrun's variables", "[launch][rank_environment]") {
  auto job = two_ranks(JobKind::kExec);
  auto env = rank_environment(job, job.ranks[1],
                              {.num_threads = 4, .master_port = 1234, .error_file = "/e.json", .agent_tag = "7:8:9"});
  const std::map<std::string, std::string> expected{{"RANK", "1"},
                                                    {"LOCAL_RANK", "1"},
                                                    {"WORLD_SIZE", "2"},
                                                    {"LOCAL_WORLD_SIZE", "2"},
                                                    {"NODE_RANK", "0"},
                                                    {"GROUP_RANK", "0"},
                                                    {"GROUP_WORLD_SIZE", "1"},
                                                    {"ROLE_RANK", "1"},
                                                    {"ROLE_NAME", "default"},
                                                    {"ROLE_WORLD_SIZE", "2"},
                                                    {"MASTER_ADDR", "127.0.0.1"},
                                                    {"MASTER_PORT", "1234"},
                                                    {"TORCHELASTIC_RESTART_COUNT", "0"},
                                                    {"TORCHELASTIC_MAX_RESTARTS", "0"},
                                                    {"TORCHELASTIC_RUN_ID", "job-1"},
                                                    {"TORCHELASTIC_USE_AGENT_STORE", "True"},
                                                    {"TORCHELASTIC_ERROR_FILE", "/e.json"},
                                                    {"TORCH_NCCL_ASYNC_ERROR_HANDLING", "1"},
                                                    {"OMP_NUM_THREADS", "4"},
                                                    {"DSLAUNCH_JOB_ID", "job-1"},
                                                    {"DSLAUNCH_AGENT", "7:8:9"},
                                                    {"CUDA_VISIBLE_DEVICES", "3"},
                                                    {"HOME", "/h"}};
  for (const auto& [name, value] : expected) {
    INFO(name);
    CHECK(env[name] == value);
  }
  CHECK_FALSE(env.contains("DSLAUNCH_AGENT_STORE"));
}

TEST_CASE("workers use the agent's store", "[launch][rank_environment]") {
  auto job = two_ranks(JobKind::kRun);
  CHECK(rank_environment(job, job.ranks[0], {.master_port = 1234, .error_file = {}}).contains("DSLAUNCH_AGENT_STORE"));
  CHECK_FALSE(rank_environment(job, job.ranks[0], {.error_file = {}}).contains("DSLAUNCH_AGENT_STORE"));
  CHECK(rank_environment(job, job.ranks[0], {.master_port = 1234, .error_file = {}})["TORCHELASTIC_USE_AGENT_STORE"] ==
        "False");
}

TEST_CASE("a thread count of the user stays", "[launch][rank_environment]") {
  auto job = two_ranks(JobKind::kExec);
  CHECK(rank_environment(job, job.ranks[0], {.num_threads = 1, .error_file = {}})["OMP_NUM_THREADS"] == "1");
  job.env["OMP_NUM_THREADS"] = "7";
  CHECK(rank_environment(job, job.ranks[0], {.num_threads = 8, .error_file = {}})["OMP_NUM_THREADS"] == "7");
}

TEST_CASE("large pages are appended to the user's own glibc tunables", "[launch][rank_environment]") {
  auto job = two_ranks(JobKind::kRun);
  const auto tunables = [&] { return rank_environment(job, job.ranks[0], {.error_file = {}})["GLIBC_TUNABLES"]; };
  CHECK(tunables() == "glibc.malloc.hugetlb=1");
  job.env["GLIBC_TUNABLES"] = "glibc.malloc.arena_max=2";
  CHECK(tunables() == "glibc.malloc.arena_max=2:glibc.malloc.hugetlb=1");
  job.env["GLIBC_TUNABLES"] = "glibc.malloc.hugetlb=0:glibc.malloc.check=1";
  CHECK(tunables() == "glibc.malloc.hugetlb=0:glibc.malloc.check=1");
  job.kind = JobKind::kExec;
  job.env.erase("GLIBC_TUNABLES");
  CHECK_FALSE(rank_environment(job, job.ranks[0], {.error_file = {}}).contains("GLIBC_TUNABLES"));
}
