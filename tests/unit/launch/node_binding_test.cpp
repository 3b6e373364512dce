#include "launch/plan/node_binding.hpp"

#include <catch2/catch.hpp>

#include "support/expect_error.hpp"
#include "support/temp_dir.hpp"

using namespace dslaunch;
using namespace dslaunch::launch;
using test::expect_error;

static JobDescription job_of(size_t num_ranks) {
  JobDescription job;
  job.host = "node7";
  for (size_t i = 0; i < num_ranks; ++i) job.ranks.push_back({static_cast<int>(i), static_cast<int>(i), {"p"}, {}});
  return job;
}

TEST_CASE("a missing directory is named with its host", "[launch][node_binding]") {
  test::TempDir dir;
  auto job = job_of(1);
  check_working_dir(job);
  job.cwd = dir.path();
  check_working_dir(job);
  job.cwd = dir / "gone";
  expect_error(ExitCode::kNoInput, {dir / "gone", "node7", "--chdir"}, [&] { check_working_dir(job); });
  test::write_file(job.cwd, "");
  expect_error(ExitCode::kNoInput, {"node7"}, [&] { check_working_dir(job); });
}

TEST_CASE("every rank of a node gets its binding, on cores that are there", "[launch][node_binding]") {
  CHECK(bind_ranks(job_of(5)).size() == 5);
  auto job = job_of(1);
  job.binding.kind = BindingKind::kCores;
  auto bindings = bind_ranks(job);
  REQUIRE(bindings.size() == 1);
  CHECK_FALSE(bindings[0].cpus.empty());
  job.env["KMP_AFFINITY"] = "none";
  expect_error(ExitCode::kContradiction, {"KMP_AFFINITY"}, [&] { bind_ranks(job); });
}
