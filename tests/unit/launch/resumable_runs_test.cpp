#include "launch/jobs/resumable_runs.hpp"

#include <catch2/catch.hpp>
#include <filesystem>

#include "launch/plan/run_record.hpp"
#include "support/expect_error.hpp"
#include "support/temp_dir.hpp"

using namespace dslaunch;
using namespace dslaunch::launch;
namespace fs = std::filesystem;
using Words = std::vector<std::string>;

namespace {

// Jobs and run directories of two working directories.
struct Records {
  test::TempDir root;
  std::vector<KnownJob> jobs;  // newest first

  std::string directory(const std::string& name) const {
    fs::create_directories(root / name);
    return root / name;
  }
  void add_job(const std::string& id, const Words& words, const std::string& where, const std::string& run_dir) {
    KnownJob job{{}, {}, Condition::kEnded};
    job.record.job_id = id;
    job.record.kind = JobKind::kRun;
    job.record.start = {"dslaunch", words, directory(where)};
    job.record.run_dir = directory(run_dir);
    jobs.insert(jobs.begin(), job);
  }
  void add_run(const std::string& id, const Words& words, const std::string& where, const std::string& run_dir,
               int64_t started) const {
    write_run_record(directory(run_dir), {id, started, 1, 2, "", {"dslaunch", words, directory(where)}});
  }
  std::vector<std::string> found_in(const std::string& where) const {
    std::vector<std::string> ids;
    for (const auto& run : runs_started_in(directory(where), jobs)) ids.push_back(run.record.job_id);
    return ids;
  }
};

}  // namespace

TEST_CASE("runs of this directory, the newest first, whether their jobs are on record or not",
          "[launch][resumable_runs]") {
  Records records;
  records.add_run("pruned", {"p.pt"}, "here", "here/runs/pruned", 100);
  records.add_run("a", {"a.pt"}, "here", "here/runs/a", 200);
  records.add_job("a", {"a.pt"}, "here", "here/runs/a");
  records.add_run("b", {"b.pt"}, "here", "elsewhere/b", 300);
  records.add_job("b", {"b.pt"}, "here", "elsewhere/b");
  records.add_run("c", {"c.pt"}, "there", "there/runs/c", 400);
  records.add_job("c", {"c.pt"}, "there", "there/runs/c");
  records.add_job("evaluation", {"a.pt", "--eval_only"}, "here", "here/runs/a");
  records.add_job("gone", {"d.pt"}, "here", "here/runs/gone");
  fs::remove(records.root / "here/runs/gone");
  CHECK(records.found_in("here") == Words{"b", "a", "pruned"});
  CHECK(records.found_in("there") == Words{"c"});
  CHECK(records.found_in("nowhere").empty());
}

TEST_CASE("a start that failed is not what continues the run of its directory", "[launch][resumable_runs]") {
  Records records;
  records.add_run("good", {"good.pt"}, "here", "here/runs/a", 200);
  records.add_job("good", {"good.pt"}, "here", "here/runs/a");
  records.add_job("bad", {"bad.pt", "--resume", "auto"}, "here", "here/runs/a");
  for (const std::string& name : {std::string("good"), std::string("bad"), records.root / "here/runs/a"}) {
    CHECK(find_run(name, records.jobs).record.start.words == Words{"good.pt"});
  }
  records.jobs.front().condition = Condition::kLiving;
  CHECK(find_run("good", records.jobs).condition == Condition::kLiving);
}

TEST_CASE("a copy of a run directory continues by its own record", "[launch][resumable_runs]") {
  Records records;
  records.add_run("a", {"a.pt", "--env", "KEY=1"}, "here", "here/runs/a", 200);
  records.add_job("a", {"a.pt", "--env", "KEY=1"}, "here", "here/runs/a");
  fs::copy(records.root / "here/runs/a", records.root / "copy", fs::copy_options::recursive);
  const auto copy = find_run(records.root / "copy", records.jobs);
  CHECK(copy.record.run_dir == records.root / "copy");
  CHECK(copy.record.start.words == Words{"a.pt", "--env", "KEY=1"});  // which only the job's record has
  CHECK(find_run(records.root / "copy", {}).record.start.words == Words{"a.pt", "--env", "KEY"});
  test::expect_error(ExitCode::kNoInput, {"no run in", "--resume auto"},
                     [&] { find_run(records.directory("empty"), records.jobs); });
}

TEST_CASE("the name of a run is not that of its evaluation", "[launch][resumable_runs]") {
  Records records;
  records.add_job("a", {"a.pt"}, "here", "here/runs/a");
  records.jobs.front().record.name = "bert";
  records.add_job("e", {"a.pt", "--eval_only"}, "here", "here/runs/a");
  records.jobs.front().record.name = "bert";
  CHECK(find_run("bert", records.jobs).record.job_id == "a");
  CHECK(find_run("e", records.jobs).record.job_id == "e");  // which is then refused
}
