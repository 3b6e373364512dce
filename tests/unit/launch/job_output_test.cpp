#include "launch/supervisor/job_output.hpp"

#include <catch2/catch.hpp>
#include <chrono>
#include <string>

#include "base/live_progress.hpp"
#include "support/temp_dir.hpp"

using namespace dslaunch;
using namespace dslaunch::launch;

namespace {

// Both on host "a", with logs below `dir`.
LaunchPlan two_ranks(const test::TempDir& dir) {
  LaunchPlan plan;
  plan.job_dir = dir / "job";
  plan.nodes.push_back({.host = "a", .ranks = {{.rank = 0, .local_rank = 0}, {.rank = 1, .local_rank = 1}}});
  return plan;
}

}  // namespace

TEST_CASE("deduplicated lines keep their order across the streams", "[launch]") {
  test::TempDir dir;
  const LaunchPlan plan = two_ranks(dir);
  FileThread files;
  ConsoleLog console(dir / "console.log", files);
  JobOutput output(plan, {.files = &files, .has_terminal = false, .fold = true, .console = &console});
  output.open_logs();
  // Rank 0's lines wait for rank 1's; a line of ours brings all of them to light at once.
  output.take({0, Stream::kOut, "one\ntwo\n"});
  output.take({0, Stream::kErr, "trouble\n"});
  output.take({0, Stream::kOut, "three\n"});
  output.print_text("ours\n");
  REQUIRE(files.wait(Deadline::after(std::chrono::seconds(10))));
  CHECK(test::read_file(dir / "console.log") == "a:0| one\na:0| two\na:0| trouble\na:0| three\nours\n");
}

TEST_CASE("dslaunch's line follows the terminator of a rank's open escape sequence", "[launch]") {
  test::TempDir dir;
  const LaunchPlan plan = two_ranks(dir);
  FileThread files;
  ConsoleLog console(dir / "console.log", files);
  JobOutput output(plan, {.files = &files, .has_terminal = false, .console = &console});
  output.open_logs();
  output.take({1, Stream::kOut, "\x1b]0;title\n"});
  output.take({0, Stream::kOut, "\x1b[31mred\x1b[0m\n"});
  output.print_text("ours\n");
  output.take({1, Stream::kErr, "\x1b]0;title\n"});
  output.print_text("ours\n");
  output.print_text("ours\n");
  REQUIRE(files.wait(Deadline::after(std::chrono::seconds(10))));
  CHECK(test::read_file(dir / "console.log") ==
        "a:1| \x1b]0;title\na:0| \x1b[31mred\x1b[0m\nours\na:1| \x1b]0;title\n\x18\x1b\\ours\nours\n");
}

TEST_CASE("in a file the states of a progress bar have their prefix once", "[launch][job_output]") {
  test::TempDir dir;
  const LaunchPlan plan = two_ranks(dir);
  FileThread files;
  ConsoleLog console(dir / "console.log", files);
  JobOutput output(plan, {.files = &files, .has_terminal = false, .console = &console});
  output.open_logs();
  output.take({0, Stream::kOut, "10%\r20%\r"});
  output.take({0, Stream::kOut, "30%\r40%\r50%"});
  output.take({1, Stream::kOut, "one\n"});  // the bar's next state is not of rank 1
  output.take({0, Stream::kOut, "\r60%\n"});
  output.take({1, Stream::kErr, "1/2\r2/2"});
  output.finish(1);
  output.take({0, Stream::kOut, "1\r2\r"});
  output.print_text("ours\n");
  output.take({0, Stream::kOut, "3\n"});
  REQUIRE(files.wait(Deadline::after(std::chrono::seconds(10))));
  CHECK(test::read_file(dir / "console.log") ==
        "a:0| 10%\r20%\r30%\r40%\ra:1| one\na:0| 50%\r60%\na:1| 1/2\r2/2\na:0| 1\r\nours\na:0| 2\r3\n");
}

TEST_CASE("records of the live line stay out of logs and console, the lines that it stands for do not",
          "[launch][job_output]") {
  test::TempDir dir;
  const LaunchPlan plan = two_ranks(dir);
  FileThread files;
  ConsoleLog console(dir / "console.log", files);
  JobOutput output(plan, {.files = &files, .has_terminal = false, .live = true, .console = &console});
  output.open_logs();
  const std::string mark(1, live::kMark);
  output.take({0, Stream::kOut, "start\n" + live::progress_record({.step = 1, .total_steps = 2})});
  output.take({0, Stream::kOut, live::plain_line_record("step 1/2") + live::end_record() + "end\n"});
  output.take({0, Stream::kErr, mark + "pwarning\n"});  // only rank 0's standard output has records
  output.take({1, Stream::kOut, mark + "pother\n"});
  output.finish(0);
  REQUIRE(files.wait(Deadline::after(std::chrono::seconds(10))));
  CHECK(test::read_file(dir / "console.log") ==
        "a:0| start\na:0| step 1/2\na:0| end\na:0| " + mark + "pwarning\na:1| " + mark + "pother\n");
  CHECK(test::read_file(dir / "job/logs/a.0.log") == "start\nstep 1/2\nend\n" + mark + "pwarning\n");
}

TEST_CASE("a rank's last words are in view until many lines have followed them", "[launch][job_output]") {
  test::TempDir dir;
  const LaunchPlan plan = two_ranks(dir);
  FileThread files;
  ConsoleLog console(dir / "console.log", files);
  const bool folds = GENERATE(true, false);
  JobOutput output(plan, {.files = &files, .has_terminal = false, .fold = folds, .console = &console});
  output.open_logs();
  std::string many, few;
  for (int i = 0; i < 30; ++i) many += "line\n";
  for (int i = 0; i < 5; ++i) few += "line\n";
  output.take({0, Stream::kErr, "error: of many lines\n" + many});
  output.print_text("");
  CHECK(output.shows_tail(0));
  output.take({1, Stream::kOut, few});
  output.print_text("");
  CHECK(output.shows_tail(0));
  output.take({1, Stream::kOut, many});
  output.print_text("");
  CHECK_FALSE(output.shows_tail(0));
}
