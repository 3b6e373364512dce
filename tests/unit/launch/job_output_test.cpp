#include "launch/supervisor/job_output.hpp"

#include <catch2/catch.hpp>
#include <chrono>
#include <string>

#include "support/temp_dir.hpp"

using namespace dslaunch;
using namespace dslaunch::launch;

TEST_CASE("deduplicated lines keep their order across the streams", "[launch]") {
  test::TempDir dir;
  LaunchPlan plan;
  plan.job_dir = dir / "job";
  plan.nodes.push_back({.host = "a", .ranks = {{.rank = 0, .local_rank = 0}, {.rank = 1, .local_rank = 1}}});
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
  LaunchPlan plan;
  plan.job_dir = dir / "job";
  plan.nodes.push_back({.host = "a", .ranks = {{.rank = 0, .local_rank = 0}, {.rank = 1, .local_rank = 1}}});
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
