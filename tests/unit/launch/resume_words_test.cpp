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

TEST_CASE("a run that has saved nothing starts again by its own command line", "[launch][resume_words]") {
  const std::vector<std::pair<Words, Words>> cases{
      {{"m.pt"}, {"m.pt"}},
      {{"m.pt", "--run_dir", "a"}, {"m.pt", "--run_dir", "a", "--overwrite"}},
      {{"m.pt", "--run-dir=a", "--overwrite"}, {"m.pt", "--run-dir=a", "--overwrite"}},
      {{"m.pt", "--run_dir", "a", "--resume", "auto"}, {"m.pt", "--run_dir", "a", "--overwrite"}},
      {{"m.pt", "--resume=auto"}, {"m.pt"}},
      // Both options exclude each other, and the checkpoint at PATH is what it began from.
      {{"m.pt", "--run_dir", "a", "--resume", "b"}, {"m.pt", "--run_dir", "a", "--resume", "b"}},
  };
  for (const auto& [words, again] : cases) {
    CAPTURE(words);
    CHECK(from_scratch({"dslaunch", words, "/data"}).words == again);
  }
}

TEST_CASE("values of --env are not kept with a run, and come from the shell that resumes it",
          "[launch][resume_words]") {
  const Words typed{"--env", "TOKEN=secret", "m.pt", "--env=OTHER=secret too", "--env_file", "A=B"};
  const Words kept{"--env", "TOKEN", "m.pt", "--env", "OTHER", "--env_file", "A=B"};
  CHECK(without_values_of_env(typed) == kept);
  CHECK(without_values_of_env(kept) == kept);
  const auto shell = [](const std::string& name) {
    return name == "TOKEN" ? std::optional<std::string>("new") : std::nullopt;
  };
  Words more = kept;
  more.insert(more.end(), {"--env", "OTHER=given"});
  CHECK(with_values_of_env(more, shell) ==
        Words{"--env", "TOKEN=new", "m.pt", "--env_file", "A=B", "--env", "OTHER=given"});
  test::expect_error(ExitCode::kUsage, {"--env OTHER", "--env OTHER=VALUE"}, [&] { with_values_of_env(kept, shell); });
}
