#include "launch/report/page.hpp"

#include <unistd.h>

#include <catch2/catch.hpp>
#include <cmath>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <regex>

#include "base/error.hpp"
#include "launch/report/chart.hpp"
#include "launch/report/html.hpp"
#include "launch/report/write_report.hpp"
#include "support/captured_output.hpp"
#include "support/expect_error.hpp"
#include "support/temp_dir.hpp"

using namespace dslaunch;
using namespace dslaunch::launch;
using Catch::Contains;
using test::TempDir;

namespace {

constexpr const char* kEvil = "</script><img src=x onerror=alert(1)>\"'&";

// Forty steps, an evaluation every ten; a failure after step 25 and a restart from the checkpoint of step 20.
void write_run(const std::filesystem::path& dir, double lr = 1e-3, int world = 4, double input_ms = 1) {
  std::filesystem::create_directories(dir);
  std::string metrics;
  for (int step = 1; step <= 40; ++step) {
    nlohmann::ordered_json line = {{"step", step},
                                   {"loss", 10.0 / step},
                                   {"lr", lr / step},
                                   {"grad_norm", 1.0 + step % 3},
                                   {"loss_scale", step < 20 ? 65536 : 32768},
                                   {"overflow", step == 3},
                                   {"step_ms", 100 + step},
                                   {"input_ms", step == 1 ? 90 : input_ms + step % 2},
                                   {"samples_per_s", 80.0 + step % 3},
                                   {"tokens_per_s", 800.0 + step},
                                   {"gpu_mem_bytes", (1 << 30) + step},
                                   {"host_mem_bytes", (1 << 30) + step},
                                   {"forward_ms", 30},
                                   {"backward_ms", 60},
                                   {"reduce_ms", 5},
                                   {"update_ms", 4}};
    if (step % 10 == 0) {
      line["eval_loss"] = 11.0 / step;
      line["eval_accuracy"] = 0.01 * step;
    }
    metrics += line.dump() + "\n";
  }
  test::write_file(dir / "metrics.jsonl", metrics);
  test::write_file(
      dir / "config.resolved.json",
      nlohmann::json({{"optimizer", {{"params", {{"lr", lr}}}}}, {"train", {{"seed", 42}}}, {"note", kEvil}}).dump());
  test::write_file(
      dir / "events.jsonl",
      R"({"time":1000,"event":"start","step":0,"total_steps":40,"environment":{"torch":"2.11.0","gpus":"8 x H100"}})"
      "\n"
      R"({"time":1020,"event":"checkpoint","step":20})"
      "\n"
      R"({"time":1040,"event":"start","step":20,"total_steps":40,"environment":{"torch":"2.11.0"}})"
      "\n"
      R"({"time":1060,"event":"end","step":40,"outcome":"finished"})"
      "\n");
  nlohmann::json cause = {{"time", 1030},   {"event", "end"}, {"attempt", 0},    {"exit_code", 137},
                          {"cause", kEvil}, {"step", 25},     {"restarts", true}};
  std::string ranks;
  for (int sample = 1; sample <= 3; ++sample) {
    nlohmann::json line = {{"time", 1000 + 10 * sample}, {"event", "ranks"}};
    for (int rank = 0; rank < world; ++rank) {
      line["step"].push_back(10 * sample);
      line["step_ms"].push_back(100);
      line["busy_ms"].push_back(rank == 2 ? 95 : 60);  // rank 2 is the slow one
      line["waiting"].push_back(rank != 2);
    }
    ranks += line.dump() + "\n";
  }
  test::write_file(
      dir / "launcher.jsonl",
      R"({"time":999,"event":"launch","attempt":0,"job_id":"J1","world_size":4,"environment":{"git_commit":"abc123"}})"
      "\n" +
          ranks + cause.dump() + "\n" +
          R"({"time":1039,"event":"launch","attempt":1,"job_id":"J1","world_size":4})"
          "\n"
          R"({"time":1061,"event":"end","attempt":1,"exit_code":0,"cause":"","step":40,"restarts":false})"
          "\n");
}

// The <figure> of a chart.
std::string figure_in(const std::string& page, const std::string& id) {
  const size_t begin = page.find("id=\"" + id + "\"");
  return begin == page.npos ? "" : page.substr(begin, page.find("</figure>", begin) - begin);
}

size_t count(const std::string& text, const std::string& part) {
  size_t found = 0;
  for (size_t at = text.find(part); at != text.npos; at = text.find(part, at + 1)) ++found;
  return found;
}

}  // namespace

TEST_CASE("what never changes is a word instead of a chart", "[launch][report][page]") {
  const TempDir dir;
  test::write_file(dir / "metrics.jsonl",
                   "{\"step\": 1, \"loss\": 2.5, \"lr\": 0.001, \"mine\": 7}\n"
                   "{\"step\": 2, \"loss\": 2.25, \"lr\": 0.001, \"mine\": 7}\n");
  const std::string page = report_page({read_run_history(dir.path())});
  CHECK_FALSE(figure_in(page, "chart-loss").empty());
  CHECK(figure_in(page, "chart-lr").empty());
  CHECK_THAT(page, Contains("Constant: Learning rate 0.001.") && Contains("Constant: mine 7."));
}

TEST_CASE("texts of evaluations are in the report, the last ones first", "[launch][report][page]") {
  const TempDir dir;
  write_run(dir.path() + "/run");
  CHECK_THAT(report_page({read_run_history(dir.path() + "/run")}), !Contains("id=\"samples\""));
  const auto line = [](int step, const char* text) {
    return nlohmann::json({{"step", step}, {"prompt", "Once"}, {"text", text}, {"finish", "end"}}).dump() + "\n";
  };
  test::write_file(dir.path() + "/run/samples.jsonl", line(20, " upon") + "{damaged\n" + line(40, kEvil));
  const std::string page = report_page({read_run_history(dir.path() + "/run")});
  const auto newest = page.find("<td>40</td><td>Once</td><td>&lt;/script&gt;"),
             folded = page.find("Earlier evaluations"), older = page.find("<td>20</td><td>Once</td><td> upon</td>");
  CHECK((newest < folded && folded < older && older != page.npos));
  CHECK_THAT(page, Contains("damaged lines of samples.jsonl, left out: 1") && !Contains("<td></td>"));
}

TEST_CASE("a run has the name that --name gave it in the report", "[launch][report][page]") {
  const TempDir dir;
  const auto name_with = [&](const std::string& recorded) {
    test::write_file(
        dir / "run.json",
        fmt::format(R"({{"job_id": "j", "name": {}, "started": 1, "model": "0", "config": "0"}})", recorded));
    return read_run_history(dir.path()).name;
  };
  const std::string own = dir.path().substr(dir.path().rfind('/') + 1);
  CHECK(name_with("\"bert\"") == "bert");
  CHECK(name_with("null") == own);
  // The id of the run's first job, as jobs that continue it are called.
  CHECK(name_with("\"20260131-174502-4711-c0de1234\"") == own);
}

TEST_CASE("a file of twenty thousand metrics gives a page of bounded size", "[launch][report][page]") {
  const TempDir dir;
  std::string metrics;
  for (int step = 1; step <= 3; ++step) {
    metrics += "{\"step\": " + std::to_string(step);
    for (int i = 0; i < 20'000; ++i) metrics += fmt::format(",\"m{}\":{}", step == 1 ? i : 19'999 - i, i + step * i);
    metrics += "}\n";
  }
  test::write_file(dir / "metrics.jsonl", metrics);
  const std::string page = report_page({read_run_history(dir.path())});
  CHECK(page.size() < 300'000);
  CHECK(count(page, "<figure class=\"chart\" id=\"chart-m") == 60);
  CHECK_THAT(page, Contains("Not drawn: 19,940 more; metrics.jsonl has them."));
}

TEST_CASE("a run that waits for its input has a chart of it, with what helps", "[launch][report][page]") {
  const TempDir dir;
  write_run(dir.path() + "/run", 1e-3, 4, /*input_ms=*/30);
  const std::string figure = figure_in(report_page({read_run_history(dir.path() + "/run")}), "chart-input_ms");
  CHECK_THAT(figure, Contains("<path d=\"M") && Contains("The input is the limit: steps waited 30.5 of 121 ms for") &&
                         Contains("To make it faster: raise data.num_workers while"));
}

TEST_CASE("the page of a run has every chart, and what happened on the time axis", "[launch][report][page]") {
  const TempDir dir;
  write_run(dir.path() + "/run");
  const RunHistory run = read_run_history(dir.path() + "/run");
  CHECK(run.state == "finished");
  CHECK(run.job_id == "J1");
  REQUIRE(run.attempts.size() == 2);
  CHECK(run.attempts[0].exit_code == 137);
  CHECK(run.attempts[0].last_step == 25);
  CHECK(run.attempts[0].restarts);
  CHECK(run.attempts[1].first_step == 20);
  CHECK(run.attempts[1].exit_code == 0);
  REQUIRE(run.checkpoints.size() == 1);
  CHECK(run.checkpoints[0].step == 20);
  const std::string page = report_page({run});
  for (const char* key : {"loss", "eval_accuracy", "lr", "grad_norm", "loss_scale", "tokens_per_s", "samples_per_s",
                          "step_ms", "gpu_mem_bytes", "host_mem_bytes"}) {
    INFO(key);
    const std::string figure = figure_in(page, std::string("chart-") + key);
    CHECK_THAT(figure, Contains("<title id=") && Contains("<path d=\"M"));
    CHECK_THAT(figure, Contains("class=\"restart\"") && Contains("class=\"failure\""));
  }
  const std::string loss = figure_in(page, "chart-loss");
  CHECK_THAT(loss, Contains("checkpoint of step 20"));
  // The loss of evaluations is in the same chart, and has none of its own.
  CHECK(count(loss, "class=\"line c0 r0\"") == 1);
  CHECK(count(loss, "class=\"line c0 r0 dashed\"") == 1);
  CHECK_THAT(loss, Contains("Dashed: loss of evaluations."));
  CHECK(figure_in(page, "chart-input_ms").empty());  // apart from the first step it is below a twentieth
  CHECK(figure_in(page, "chart-eval_loss").empty());
  CHECK_THAT(page, !Contains("Constant: "));
  CHECK(count(figure_in(page, "chart-breakdown-0"), "class=\"area") == 4);
  CHECK(count(figure_in(page, "ranks-busy_ms-0"), "<rect class=\"bar") == 4);
  CHECK_THAT(page, Contains("busy_ms: highest on rank 2 (95.0 ms)"));
  CHECK(count(figure_in(page, "ranks-waiting-0"), "rank 2: 0<") == 1);  // the others wait for it
  CHECK(count(figure_in(page, "ranks-waiting-0"), ": 1<") == 3);
  CHECK_THAT(figure_in(page, "spread-busy_ms-0"), Contains("35.0 ms"));  // 95 less 60
  CHECK(count(page, "class=\"attempt\"") == 2);
  CHECK(count(page, "class=\"saved\"") == 1);
  CHECK_THAT(page, Contains("exit code 137, restarted") && Contains("1970-01-01T00:16:39Z"));
  CHECK_THAT(page, Contains("<code>optimizer.params.lr</code>") && Contains("8 x H100") && Contains("abc123"));
  CHECK_THAT(page, Contains("best loss") && Contains("0.2500 at step 40"));
  CHECK_THAT(page, !Contains("http://") && !Contains("https://") && !Contains("<script src") && !Contains("url("));
}

TEST_CASE("text from outside stays text in the page", "[launch][report][page]") {
  CHECK(escape_html("<a b=\"c\">&'\x1b") == "&lt;a b=&quot;c&quot;&gt;&amp;&#39;\\x1b");
  const TempDir dir;
  write_run(dir.path() + "/run<b>");
  const std::string page = report_page({read_run_history(dir.path() + "/run<b>")});
  CHECK_THAT(page, !Contains("<img") && !Contains("<b>"));
  CHECK_THAT(page, Contains("&lt;img src=x onerror=alert(1)&gt;&quot;&#39;&amp;") && Contains("run&lt;b&gt;"));
  // One per chart with values to show, and the page's own.
  CHECK(count(page, "<script") == count(page, "</script>"));
  const std::regex data("<script type=\"application/json\">([^<]*)</script>");
  size_t num_charts = 0;
  for (std::sregex_iterator at(page.begin(), page.end(), data), end; at != end; ++at, ++num_charts) {
    CHECK(nlohmann::json::accept((*at)[1].str()));
  }
  CHECK(num_charts == count(page, "<script type"));
  CHECK(num_charts > 10);
}

TEST_CASE("several runs are compared: a colour each, and the keys that differ", "[launch][report][page]") {
  const TempDir dir;
  write_run(dir.path() + "/a", 1e-3);
  write_run(dir.path() + "/b", 5e-4);
  const std::string page = report_page({read_run_history(dir.path() + "/a"), read_run_history(dir.path() + "/b")});
  const std::string loss = figure_in(page, "chart-loss");
  CHECK_THAT(loss, Contains("class=\"line c0 r0\"") && Contains("class=\"line c1 r1\""));
  CHECK(count(page, "data-run=") == 2);
  const std::string differing =
      page.substr(page.find("Keys that differ"), page.find("<details>") - page.find("Keys that differ"));
  CHECK_THAT(differing, Contains("optimizer.params.lr") && Contains("0.001") && Contains("0.0005"));
  CHECK_THAT(differing, !Contains("train.seed"));
}

TEST_CASE("a run directory with damaged or missing files has a page that says so", "[launch][report][page]") {
  const TempDir dir;
  const auto page_of = [&] { return report_page({read_run_history(dir.path())}); };
  SECTION("empty") {
    CHECK_FALSE(is_run_directory(dir.path()));
    CHECK_THAT(page_of(), Contains("metrics.jsonl is missing") && Contains("No step is recorded"));
  }
  SECTION("no step yet") {
    dir.write("metrics.jsonl", "");
    CHECK(is_run_directory(dir.path()));
    CHECK_THAT(page_of(), Contains("has no step yet"));
  }
  SECTION("a loss that is never finite, a line that is cut off, a config that is not JSON, nested events") {
    dir.write("metrics.jsonl", "{\"step\":1,\"loss\":null}\n{\"step\":2,\"loss\":NaN}\n{\"step\":3");
    dir.write("config.resolved.json", "{");
    dir.write("events.jsonl", std::string(200'000, '[') + "\n{\"time\":\"x\",\"event\":3}\n{\"event\":\"end\"}\nx");
    dir.write("launcher.jsonl",
              "{\"time\":1,\"event\":\"ranks\",\"step\":\"x\",\"step_ms\":[null,\"a\"],\"busy_ms\":[]}\n"
              "{\"time\":2,\"event\":\"end\",\"step\":[]}\n");
    const std::string page = page_of();
    CHECK_THAT(page, Contains("last line of metrics.jsonl is incomplete") && Contains("loss was not finite: 2") &&
                         Contains("config.resolved.json is damaged") &&
                         Contains("damaged lines of events.jsonl, left out: 3"));
    CHECK_THAT(figure_in(page, "chart-loss"), Contains("no finite value is recorded"));
  }
  SECTION("one step") {
    dir.write("metrics.jsonl", "{\"step\":7,\"loss\":1.5}\n");
    CHECK_THAT(figure_in(page_of(), "chart-loss"), Contains("<circle class=\"dot\""));
  }
  SECTION("a device in place of a file") {
    std::filesystem::create_symlink("/dev/zero", dir.path() + "/metrics.jsonl");
    std::filesystem::create_symlink("/dev/zero", dir.path() + "/events.jsonl");
    CHECK_THAT(page_of(), Contains("metrics.jsonl is missing"));
  }
}

TEST_CASE("a long run has a small page", "[launch][report][page]") {
  const TempDir dir;
  std::string metrics;
  for (int step = 1; step <= 20'000; ++step) {
    metrics += fmt::format("{{\"step\":{},\"loss\":{},\"lr\":{},\"step_ms\":{}}}\n", step, std::sin(step),
                           std::cos(step), step % 7);
  }
  dir.write("metrics.jsonl", metrics);
  CHECK(report_page({read_run_history(dir.path())}).size() < 150'000);
}

TEST_CASE("axes have round values inside their range", "[launch][report][chart]") {
  CHECK(grid_values(0, 10, 5) == std::vector<double>{0, 2, 4, 6, 8, 10});
  CHECK(grid_values(0.3, 0.9, 3).front() >= 0.3);
  CHECK(grid_values(5, 5, 3) == std::vector<double>{5});
  CHECK(grid_values(1e300, 2e300, 4).size() > 2);
  CHECK(value_text(1.95e30, Unit::kLoss) == "1.95e+30");
  CHECK(value_text(13.0 * (1 << 30), Unit::kBytes) == "13.0 GiB");
  CHECK(value_text(NAN, Unit::kLoss) == "-");
  // Curves over many orders of magnitude get powers of ten.
  const Chart chart{
      .id = "c", .title = "t", .unit = Unit::kLoss, .lines = {{"", 0, 0, {{1, 1e-3}, {2, 1e30}}}}, .markers = {}};
  CHECK_THAT(draw_chart(chart, range_of({chart})), Contains(">1<") || Contains("1e+10") || Contains("1.00e+10"));
}

TEST_CASE("a report is written complete, where it is asked for, or not at all", "[launch][report][write_report]") {
  const TempDir dir;
  const std::string run = dir.path() + "/run";
  write_run(run);
  const test::CapturedOutput out(STDOUT_FILENO);
  SECTION("by default into the run directory, again over an earlier report") {
    CHECK(write_report({.dirs = {run}, .out = {}}) == 0);
    CHECK(write_report({.dirs = {run}, .out = {}}) == 0);
    CHECK_THAT(test::read_file(run + "/report.html"), Contains("</html>"));
  }
  SECTION("not over a file of the user, unless it is named") {
    test::write_file(run + "/report.html", "mine");
    test::expect_error(ExitCode::kCannotCreate, {"was not written by 'dslaunch report'"},
                       [&] { write_report({.dirs = {run}, .out = {}}); });
    CHECK(test::read_file(run + "/report.html") == "mine");
    CHECK(write_report({.dirs = {run}, .out = run + "/report.html"}) == 0);
  }
  SECTION("errors") {
    test::expect_error(ExitCode::kNoInput, {"no run directory"},
                       [&] { write_report({.dirs = {dir.path() + "/none"}, .out = {}}); });
    test::expect_error(ExitCode::kBadInput, {"is not a run directory"},
                       [&] { write_report({.dirs = {dir.path()}, .out = {}}); });
    test::expect_error(ExitCode::kCannotCreate, {"--out FILE.html"},
                       [&] { write_report({.dirs = {run}, .out = dir.path() + "/no/r.html"}); });
    test::expect_error(ExitCode::kCannotCreate, {"Is a directory"},
                       [&] { write_report({.dirs = {run}, .out = dir.path()}); });
    CHECK_THROWS_AS(write_report({.dirs = {run}, .out = "/dev/full"}), SystemError);
  }
}
