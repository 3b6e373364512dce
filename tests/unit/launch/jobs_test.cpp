// Job folders and records, and finding a job among them.
#include <sys/stat.h>

#include <catch2/catch.hpp>
#include <filesystem>

#include "../../support/expect_error.hpp"
#include "base/small_file.hpp"
#include "launch/jobs/job_table.hpp"
#include "launch/records/job_dirs.hpp"
#include "launch/records/private_files.hpp"
#include "support/temp_dir.hpp"

using namespace dslaunch;
using namespace dslaunch::launch;
using namespace std::chrono_literals;

namespace {

JobRecord some_record(const std::string& id) {
  JobRecord record;
  record.job_id = id;
  record.kind = JobKind::kRun;
  record.command = {"/opt/bin/python", "a b", "new\nline", ""};
  record.name = "bert";
  record.start = {"./dslaunch", {"run", "a b", "--quiet"}, "/home/x"};
  record.hosts = {{"node1", 2}, {"node2", 3}};
  record.cwd = "/data";
  record.run_dir = record.log_root = "/data/runs/1";
  record.started = 1790000000;
  record.supervisor = this_process();
  record.socket = "/run/x.sock";
  record.state = "running";
  return record;
}

KnownJob known(const std::string& id, Condition condition = Condition::kEnded) {
  KnownJob job{{"/jobs/" + id}, some_record(id), condition};
  if (condition == Condition::kEnded) job.record.end = JobEnd{3, 1790000100, "rank 0 on a failed first: exit code 3"};
  return job;
}

void put(const std::string& root, const JobRecord& record) {
  make_private_dir(root + "/" + record.job_id);
  write_private_file(root + "/" + record.job_id + "/job.json", record_to_json(record));
}

mode_t mode_of(const std::string& path) {
  struct stat found;
  REQUIRE(::stat(path.c_str(), &found) == 0);
  return found.st_mode & 07777;
}

}  // namespace

TEST_CASE("a job's record survives encoding and decoding", "[launch][jobs]") {
  JobRecord record = some_record("20260131-174502-4711-c0de");
  CHECK(record_from_json(record_to_json(record)) == record);
  record.end = JobEnd{137, 1790000100, "why"};
  record.run_dir = record.socket = record.name = "";
  record.start = {};
  record.errors = {"cannot write to a: full", "cannot write to b: full"};
  record.stuck = {{1, "node2", false, {4711, 99, 'D', "rpc_wait_bit"}}, {-1, "node1", true, {4712, 98, 'R', ""}}};
  CHECK(record_from_json(record_to_json(record)) == record);
  CHECK_FALSE(record_from_json("").has_value());
  CHECK_FALSE(record_from_json("{\"job_id\": 3}").has_value());
}

TEST_CASE("rejects a record with impossible numbers", "[launch][jobs]") {
  JobRecord negative = some_record("j"), huge = negative, nobody = negative, odd_end = negative;
  negative.hosts[0].num_ranks = -1;
  huge.hosts[0].num_ranks = huge.hosts[1].num_ranks = 2'000'000'000;
  nobody.supervisor.pid = 0;
  odd_end.end = JobEnd{256, 1790000000, ""};
  for (const auto& record : {negative, nobody, odd_end}) CHECK_FALSE(record_from_json(record_to_json(record)));
  std::string text = record_to_json(huge);
  CHECK_FALSE(record_from_json(text));
}

TEST_CASE("ranks are counted through the hosts", "[launch][jobs]") {
  JobRecord record = some_record("j");
  CHECK(record.world_size() == 5);
  CHECK(record.host_of(1) == "node1");
  CHECK(record.host_of(2) == "node2");
  CHECK(record.host_of(5).empty());
  CHECK(record.host_of(-1).empty());
}

TEST_CASE("a host name cannot place a log outside its directory", "[launch][jobs]") {
  CHECK(log_path("/r", "../../x", 3) == "/r/logs/.._.._x.3.log");
}

TEST_CASE("a process is identified by more than its pid", "[launch][jobs]") {
  ProcessOnHost own = this_process();
  CHECK(presence_of(own) == Presence::kAlive);
  CHECK(open_process(own).has_value());
  ProcessOnHost later = own;
  ++later.start_ticks;
  CHECK(presence_of(later) == Presence::kGone);
  CHECK_FALSE(open_process(later).has_value());
  ProcessOnHost before_boot = own;
  before_boot.boot_id = "another";
  CHECK(presence_of(before_boot) == Presence::kGone);
  ProcessOnHost elsewhere = own;
  elsewhere.host = "another.invalid";
  CHECK(presence_of(elsewhere) == Presence::kElsewhere);
  ProcessOnHost in_a_container = own;
  ++in_a_container.pid_namespace;
  CHECK(presence_of(in_a_container) == Presence::kElsewhere);
  ProcessOnHost of_an_older_version = own;
  of_an_older_version.pid_namespace = 0;
  CHECK(presence_of(of_an_older_version) == Presence::kAlive);
}

TEST_CASE("a job is found by its id, whatever a process's environment contains", "[launch][jobs]") {
  test::TempDir dir;
  put(dir.path(), some_record("a"));
  put(dir.path() + "/below", some_record("b"));
  put(dir.path(), some_record("other"));
  std::filesystem::rename(dir / "other", dir / "renamed");
  REQUIRE(job_on_record(dir.path(), "a"));
  CHECK(job_on_record(dir.path(), "a")->record == some_record("a"));
  for (const char* id : {"", ".", "..", "below/b", "renamed", "missing"}) {
    CAPTURE(id);
    CHECK_FALSE(job_on_record(dir.path(), id));
  }
  CHECK_FALSE(job_on_record("", "a"));
}

TEST_CASE("directories and files are private and written atomically", "[launch][jobs]") {
  test::TempDir dir;
  std::string root = dir / "a/b/jobs";
  JobDir job = make_job_dir(root, "j1");
  for (const char* name : {"a", "a/b", "a/b/jobs", "a/b/jobs/j1"}) CHECK(mode_of(dir / name) == 0700);
  write_private_file(job.record_file(), "one");
  write_private_file(job.record_file(), "two");
  CHECK(mode_of(job.record_file()) == 0600);
  CHECK(read_whole_file(job.record_file()) == "two");
  CHECK(std::distance(std::filesystem::directory_iterator(job.path), {}) == 1);
  test::expect_error(ExitCode::kCannotCreate, {"j1"}, [&] { make_job_dir(root, "j1"); });
  write_private_file(dir / "plain", "");
  test::expect_error(ExitCode::kCannotCreate, {"plain"}, [&] { make_job_dir(dir / "plain/jobs", "j1"); });
  test::expect_error(ExitCode::kCannotCreate, {"HOME"}, [&] { make_job_dir("", "j1"); });
}

TEST_CASE("the state directory follows XDG_STATE_HOME, then HOME", "[launch][jobs]") {
  std::string home = std::getenv("HOME") ? std::getenv("HOME") : "";
  std::string state = std::getenv("XDG_STATE_HOME") ? std::getenv("XDG_STATE_HOME") : "";
  ::setenv("HOME", "/home/x", 1);
  ::setenv("XDG_STATE_HOME", "/state", 1);
  CHECK(jobs_root() == "/state/dslaunch/jobs");
  ::setenv("XDG_STATE_HOME", "relative", 1);
  CHECK(jobs_root() == "/home/x/.local/state/dslaunch/jobs");
  ::unsetenv("XDG_STATE_HOME");
  CHECK(jobs_root() == "/home/x/.local/state/dslaunch/jobs");
  home.empty() ? ::unsetenv("HOME") : ::setenv("HOME", home.c_str(), 1);
  if (!state.empty()) ::setenv("XDG_STATE_HOME", state.c_str(), 1);
}

TEST_CASE("a job is found by id, by a unique prefix, and as 'last'", "[launch][jobs]") {
  std::vector<KnownJob> jobs{known("20260202-1"), known("20260201-22"), known("20260201-2")};
  CHECK(find_job(jobs, "last").record.job_id == "20260202-1");
  CHECK(find_job(jobs, "20260202").record.job_id == "20260202-1");
  CHECK(find_job(jobs, "20260201-2").record.job_id == "20260201-2");
  test::expect_error(ExitCode::kUsage, {"20260201-22", "20260201-2", "2 jobs"}, [&] { find_job(jobs, "20260201"); });
  test::expect_error(ExitCode::kNoInput, {"20260202-1"}, [&] { find_job(jobs, "20260202-3"); });
  test::expect_error(ExitCode::kNoInput, {"no job 'x'"}, [&] { find_job(jobs, "x"); });
  test::expect_error(ExitCode::kNoInput, {}, [&] { find_job(jobs, ""); });
  test::expect_error(ExitCode::kNoInput, {"no jobs on record"}, [&] { find_job({}, "last"); });
}

TEST_CASE("a job is found by its name, the newest of several", "[launch][jobs]") {
  std::vector<KnownJob> jobs{known("20260203-1"), known("20260202-1"), known("20260201-1")};
  for (auto& job : jobs) job.record.name = "bert";
  jobs[0].record.name = "";
  jobs[2].record.name = "20260203";
  CHECK(find_job(jobs, "bert").record.job_id == "20260202-1");
  CHECK(find_job(jobs, "20260203").record.job_id == "20260201-1");
  test::expect_error(ExitCode::kNoInput, {"did you mean 'bert'"}, [&] { find_job(jobs, "brt"); });
  test::expect_error(ExitCode::kNoInput, {}, [&] { find_job(jobs, ""); });
}

TEST_CASE("jobs are listed newest first, with their condition", "[launch][jobs]") {
  test::TempDir dir;
  std::string root = dir.path();
  JobRecord living = some_record("a"), lost = some_record("b"), ended = some_record("c"), elsewhere = some_record("d");
  lost.supervisor.boot_id = "before";
  lost.started += 1;
  ended.end = JobEnd{0, 1790000100, ""};
  ended.started += 2;
  elsewhere.supervisor.host = "other.invalid";
  elsewhere.started += 3;
  for (const auto& record : {living, lost, ended, elsewhere}) put(root, record);
  std::filesystem::create_directory(dir / "no job");
  auto jobs = list_jobs(root);
  REQUIRE(jobs.size() == 4);
  CHECK(jobs[0].condition == Condition::kElsewhere);
  CHECK(jobs[1].condition == Condition::kEnded);
  CHECK(jobs[2].condition == Condition::kLost);
  CHECK(jobs[3].condition == Condition::kLiving);
  CHECK(list_jobs(root + "/none").empty());
}

TEST_CASE("old jobs are pruned, running ones never", "[launch][jobs]") {
  test::TempDir dir;
  std::string root = dir.path();
  const int64_t now = 1800000000;
  for (int i = 0; i < 6; ++i) {
    JobRecord record = some_record("e" + std::to_string(i));
    record.started = now - 1000 * (i + 1);
    record.end = JobEnd{0, record.started, ""};
    put(root, record);
  }
  JobRecord living = some_record("living"), elsewhere = some_record("elsewhere"), lost = some_record("lost");
  living.started = elsewhere.started = 1;
  elsewhere.supervisor.host = "other.invalid";
  lost.supervisor.start_ticks += 1;
  lost.started = 1;
  for (const auto& record : {living, elsewhere, lost}) put(root, record);
  prune_jobs(root, 4, std::chrono::seconds(3500), now);
  std::vector<std::string> left;
  for (const auto& job : list_jobs(root)) left.push_back(job.record.job_id);
  // By number four may stay, by age three.
  CHECK(left == std::vector<std::string>{"e0", "e1", "e2", "living", "elsewhere"});
  prune_jobs(root, 1, std::chrono::seconds(3500), now);
  CHECK(list_jobs(root).size() == 3);
}

TEST_CASE("the table of jobs", "[launch][jobs]") {
  KnownJob living = known("20260131-174502-4711-c0de", Condition::kLiving), lost = known("b", Condition::kLost);
  living.record.name = lost.record.name = "bert";
  const std::vector<KnownJob> jobs{living, lost, known("c")};
  const std::vector<RunProgress> progress{progress_in(R"({"step": 850, "loss": 2.71828})"), progress_in("")};
  const std::string table = jobs_table(jobs, progress, 3, 1790000000 + 7200, {});
  CHECK_THAT(table, Catch::Matchers::StartsWith("NAME "));
  // A name stands for the newest job that has it.
  CHECK_THAT(table, Catch::Matchers::Contains("bert  running  850   2.718  2h   node1 +1\n"));
  CHECK_THAT(table, Catch::Matchers::Contains("b     lost     -     -      2h   node1 +1\n"));
  CHECK_THAT(table, Catch::Matchers::Contains("ended 3"));
  CHECK_THAT(table, Catch::Matchers::EndsWith("and 3 more that have ended: dslaunch jobs --all\n"));
  CHECK(std::count(table.begin(), table.end(), '\n') == 5);
  const std::string narrow = jobs_table(jobs, progress, 0, 1790000000 + 7200, {.width = 30});
  for (size_t at = 0; at < narrow.size();) {
    const size_t end = narrow.find('\n', at);
    CHECK(end - at <= 30);
    at = end + 1;
  }
}

TEST_CASE("a run that continues has its first job's id as its name", "[launch][jobs]") {
  KnownJob first = known("a"), second = known("b");
  first.record.name = "";
  second.record.name = "a";
  const std::vector<KnownJob> jobs{second, first};
  CHECK(find_job(jobs, "a").record.job_id == "b");
  const std::string table = jobs_table(jobs, {}, 0, 1790000000, {});
  CHECK_THAT(table, Catch::Matchers::Contains("\na            ended 3"));
  CHECK_THAT(table, Catch::Matchers::Contains("\na (earlier)  ended 3"));
}

TEST_CASE("the progress of a run is the last line of its metrics", "[launch][jobs]") {
  CHECK(progress_in(R"({"step": 3, "eval_loss": 1.5, "eval_samples": 2})").loss == 1.5);
  CHECK(progress_in(R"({"step": 3, "loss": null})").step == 3);
  CHECK_FALSE(progress_in(R"({"step": 3, "loss": null})").loss);
  for (const char* text : {"", "[]", "{\"step\": \"3\", \"loss\": []}", "{\"step\": 3"}) {
    CHECK_FALSE(progress_in(text).step);
    CHECK_FALSE(progress_in(text).loss);
  }
}

TEST_CASE("of the jobs that have ended the newest ten are in the table", "[launch][jobs]") {
  std::vector<KnownJob> jobs;
  for (int i = 0; i < 12; ++i) jobs.push_back(known("ended" + std::to_string(i)));
  jobs.push_back(known("living", Condition::kLiving));
  const auto shown = jobs_in_table(jobs, {});
  REQUIRE(shown.size() == 11);
  CHECK(shown[9].record.job_id == "ended9");
  CHECK(shown[10].record.job_id == "living");
  CHECK(jobs_in_table(jobs, {.max_ended = TableShape::kAll}).size() == 13);
}

TEST_CASE("control bytes in a directory name do not reach the terminal", "[launch][jobs]") {
  KnownJob job = known("j", Condition::kLost);
  job.record.cwd = "/home/x/\033[2Jgone";
  job.record.run_dir = job.record.log_root = job.record.cwd + "/run";
  for (std::string* field : {&job.record.job_id, &job.record.name, &job.record.state, &job.record.supervisor.host,
                             &job.record.hosts[0].host, &job.dir.path}) {
    *field += "\033]0;a title\a";
  }
  job.condition = Condition::kElsewhere;  // with the record's state and host in the table
  CHECK(jobs_table({job}, {}, 0, 1790000000, {}).find('\033') == std::string::npos);
  std::string text = job_details(job, "", 1790000000);
  CHECK(text.find('\033') == std::string::npos);
  CHECK_THAT(text, Catch::Matchers::Contains("directory  /home/x/\\x1b[2Jgone\n"));
}

TEST_CASE("jobs that ended long ago are hidden by default", "[launch][jobs]") {
  KnownJob old = known("old"), living = known("living", Condition::kLiving);
  auto ids = [](const std::vector<KnownJob>& jobs) { return jobs.size(); };
  CHECK(ids(recent_jobs({old, living}, 1790000200)) == 2);
  CHECK(ids(recent_jobs({old, living}, 1790000200 + 2 * 86400)) == 1);
}
