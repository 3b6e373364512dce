#include "launch/jobs/resume_words.hpp"

#include <catch2/catch.hpp>

#include "support/expect_error.hpp"

using namespace dslaunch;
using namespace dslaunch::launch;
using Words = std::vector<std::string>;

namespace {

JobRecord run_of(const Words& words) {
  JobRecord record;
  record.job_id = "j";
  record.kind = JobKind::kRun;
  record.start = {"./dslaunch", words, "/data/a b"};
  record.run_dir = "/data/runs/j";
  return record;
}

}  // namespace

TEST_CASE("a run is resumed by its own command line", "[launch][resume_words]") {
  struct Case {
    Words words;
    bool has_checkpoints;
    Words more;
    Words result;
  };
  const std::vector<Case> cases{
      {{"m.pt", "--config", "ds.json"},
       true,
       {},
       {"m.pt", "--config", "ds.json", "--run_dir", "/data/runs/j", "--resume", "auto"}},
      {{"m.pt"}, false, {}, {"m.pt", "--run_dir", "/data/runs/j", "--resume", "auto"}},
      {{"run", "--overwrite", "--run-dir=runs/j", "m.pt", "--resume", "auto"},
       true,
       {},
       {"run", "m.pt", "--run_dir", "/data/runs/j", "--resume", "auto"}},
      // Where it has saved nothing, it begins where it began.
      {{"m.pt", "--resume", "runs/i"}, false, {}, {"m.pt", "--resume", "runs/i", "--run_dir", "/data/runs/j"}},
      {{"m.pt", "--resume=runs/i"}, true, {}, {"m.pt", "--run_dir", "/data/runs/j", "--resume", "auto"}},
      {{"m.pt", "--steps", "10", "--set", "a=1", "--detach"},
       true,
       {"--steps=20", "--set", "b=1", "--detach"},
       {"m.pt", "--set", "a=1", "--run_dir", "/data/runs/j", "--resume", "auto", "--steps=20", "--set", "b=1",
        "--detach"}},
  };
  for (const auto& [words, has_checkpoints, more, result] : cases) {
    CAPTURE(words);
    CHECK(resume_words(run_of(words), has_checkpoints, more) == result);
  }
}

TEST_CASE("a job that cannot be resumed is refused with what to do instead", "[launch][resume_words]") {
  JobRecord exec = run_of({"exec", "--", "python", "t.py"});
  exec.kind = JobKind::kExec;
  test::expect_error(ExitCode::kUsage, {"job j is an exec job", "cd '/data/a b' && ./dslaunch exec -- python t.py"},
                     [&] { resume_words(exec, false, {}); });
  test::expect_error(ExitCode::kUsage, {"evaluation", "cd '/data/a b' && ./dslaunch m.pt --eval-only"}, [&] {
    resume_words(run_of({"m.pt", "--eval-only"}), false, {});
  });
  test::expect_error(ExitCode::kBadInput, {"--run_dir /data/runs/j --resume auto"},
                     [&] { resume_words(run_of({}), false, {}); });
}
