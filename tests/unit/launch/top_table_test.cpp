#include "launch/top/top_table.hpp"

#include <catch2/catch.hpp>
#include <nlohmann/json.hpp>

#include "launch/top/screen.hpp"
#include "support/expect_error.hpp"

using namespace dslaunch;
using namespace dslaunch::launch;
using Catch::Contains;
using Json = nlohmann::ordered_json;

namespace {

Json rank(int number, const std::string& state = "busy") {
  return {{"rank", number},
          {"host", "node1"},
          {"pid", 100 + number},
          {"activity", nullptr},
          {"waiting_in", nullptr},
          {"waiting_for", Json::array()},
          {"waiting_s", nullptr},
          {"state", state},
          {"step", 12},
          {"total_steps", 40},
          {"step_ms", 142.3},
          {"busy_ms", nullptr},
          {"host_mem_bytes", 3 << 29},
          {"gpu_percent", 98},
          {"gpu_mem_bytes", 1 << 30},
          {"gpu_total_bytes", 2147483648}};
}

std::string document(std::vector<Json> ranks, int64_t available = 90) {
  return Json{
      {"job_id", "J"},
      {"state", "running"},
      {"ranks", ranks},
      {"hosts",
       {{{"host", "node1"}, {"load", 2.25}, {"cores", 16}, {"mem_bytes", 100}, {"mem_available_bytes", available}}}}}
      .dump();
}

}  // namespace

TEST_CASE("the table has a row for each rank", "[launch][top]") {
  Json waiting = rank(1, "waiting");
  waiting["waiting_for"] = {0, 2, 3};
  waiting["waiting_s"] = 6.4;
  waiting["waiting_in"] = "all\x1b[31mreduce";
  Json ended = rank(2, "ended");
  ended["activity"] = "exit code 1";
  for (const char* key : {"step", "step_ms", "gpu_percent", "gpu_mem_bytes", "gpu_total_bytes", "host_mem_bytes"})
    ended[key] = nullptr;
  const TopTable table = top_table(document({rank(0), waiting, ended, rank(3, "stopped")}), "bert");
  REQUIRE(table.ranks.size() == 4);
  CHECK(table.above.front().text == "job bert: running, 4 ranks on node1");
  CHECK_THAT(table.ranks[0].text, Contains("12/40") && Contains("142") && Contains("busy") && Contains("98 %") &&
                                      Contains("1.0 GiB of 2.0 GiB") && Contains("1.5 GiB") && Contains("2.2 of 16"));
  CHECK_THAT(table.ranks[1].text, Contains("waiting 6 s for ranks 0, 2-3") && Contains("all\\x1b[31mreduce"));
  CHECK(table.ranks[1].kind == RowKind::kWaiting);
  CHECK_THAT(table.ranks[2].text, Contains("ended") && Contains("exit code 1"));
  CHECK(table.ranks[3].kind == RowKind::kHeld);
  // Columns stand below their headings.
  const size_t state = table.above.back().text.find("STATE");
  CHECK(table.ranks[0].text.substr(state, 4) == "busy");
  CHECK(table.ranks[2].text.substr(state, 5) == "ended");
  CHECK_THAT(plain_text(table), !Contains("\x1b"));
  CHECK_THAT(plain_text(top_table(document({rank(0, "\x1b]0;a title\a")}), "\x1b[2J")), !Contains("\x1b"));
  CHECK_THAT(plain_text(top_table(document({rank(0)}, 5), "x")), Contains("memory of node1"));
  test::expect_error(ExitCode::kInternal, {"not of this version"}, [] { top_table("{}", "x"); });
}

TEST_CASE("the table shows where ranks are, if they hold parts of the model", "[launch][top]") {
  Json split = rank(1);
  split["place"] = "tensor rank 1 of 2 of stage 0";
  const TopTable table = top_table(document({rank(0), split}), "x");
  const size_t place = table.above.back().text.find("PLACE");
  REQUIRE(place != std::string::npos);
  CHECK(table.ranks[1].text.substr(place, 29) == "tensor rank 1 of 2 of stage 0");
  CHECK(table.ranks[0].text.find("12/40") == table.ranks[1].text.find("12/40"));
  CHECK_THAT(plain_text(top_table(document({rank(0)}), "x")), !Contains("PLACE"));
}

TEST_CASE("a screen gets what fits on it", "[launch][top]") {
  std::vector<Json> ranks;
  for (int i = 0; i < 20; ++i) ranks.push_back(rank(i));
  const TopTable table = top_table(document(ranks), "x");
  auto lines = fit_to_screen(table, {.columns = 30, .rows = 10, .first_rank = 0, .colors = false});
  REQUIRE(lines.size() == 10);  // the job, the headings, seven ranks, the help
  for (const auto& line : lines) CHECK(line.size() <= 30);
  CHECK_THAT(lines[2], Contains(" 0  node1"));
  CHECK_THAT(lines[8], Contains(" 6  node1"));
  CHECK(last_first_rank(table, 10) == 13);
  lines = fit_to_screen(table, {.columns = 200, .rows = 10, .first_rank = 999, .colors = true});
  CHECK_THAT(lines[8], Contains("19  node1"));
  CHECK_THAT(lines[9], Contains("the other 13 of 20 ranks"));
  CHECK_THAT(lines[1], Contains("\x1b[7m"));
  CHECK_THAT(fit_to_screen(table, {.columns = 100, .rows = 50}).back(), Contains("q ends") && !Contains("other"));
  CHECK(fit_to_screen(table, {.columns = 1, .rows = 1}).size() == 1);
}

TEST_CASE("keys are known by what terminals send for them", "[launch][top]") {
  CHECK(keys_in("q") == std::vector<Key>{Key::kQuit});
  CHECK(keys_in("\x1b[A\x1bOB\x1b[6~x") == std::vector<Key>{Key::kUp, Key::kDown, Key::kPageDown, Key::kOther});
  CHECK(keys_in("").empty());
}
