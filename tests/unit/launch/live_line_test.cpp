#include "launch/terminal/live_line.hpp"

#include <catch2/catch.hpp>
#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "launch/terminal/live_records.hpp"

using namespace dslaunch;
using namespace dslaunch::launch;

namespace {

LiveProgress example() {
  return {.step = 120,
          .total_steps = 200,
          .epoch = 1.5,
          .loss = 2.31449,
          .lr = 3e-4,
          .step_ms = 142,
          .per_s = 7200,
          .counts_tokens = true,
          .memory_bytes = int64_t{13} << 30,
          .remaining_s = 187};
}

std::vector<std::string> pieces_of(const std::string& bytes, size_t at_once) {
  LiveRecords records;
  std::vector<std::string> out;
  const LiveRecords::Take take = [&](char kind, std::string_view text) {
    const std::string label(1, kind == 0 ? 't' : kind);
    // Text may arrive in any pieces.
    if (kind == 0 && !out.empty() && out.back()[0] == 't') {
      out.back() += text;
    } else {
      out.push_back((kind == 0 ? "t" : label) + std::string(text));
    }
  };
  for (size_t at = 0; at < bytes.size(); at += at_once) records.cut(std::string_view(bytes).substr(at, at_once), take);
  records.finish(take);
  return out;
}

}  // namespace

TEST_CASE("the live line shows everything where there is room", "[launch][live_line]") {
  CHECK(layout(example(), 140) ==
        "[==================>           ]  epoch 1.50  step 120/200  loss 2.3145  lr 3.0e-04  142 ms/step  7.2k tok/s  "
        "13.0 GiB  ETA 3 min 7 s");
  LiveProgress last = example();
  last.step = 200;
  last.remaining_s = 0;
  last.epoch.reset();
  last.memory_bytes = int64_t{300} << 20;
  last.counts_tokens = false;
  CHECK(
      layout(last, 140) ==
      "[==============================]  step 200/200  loss 2.3145  lr 3.0e-04  142 ms/step  7.2k samples/s  300 MiB  "
      "done");
}

TEST_CASE("what has no room is left out, step and loss last", "[launch][live_line]") {
  CHECK(layout(example(), 101) ==
        "epoch 1.50  step 120/200  loss 2.3145  lr 3.0e-04  142 ms/step  7.2k tok/s  13.0 GiB  ETA 3 min 7 s");
  CHECK(layout(example(), 80) == "step 120/200  loss 2.3145  142 ms/step  7.2k tok/s  13.0 GiB  ETA 3 min 7 s");
  CHECK(layout(example(), 48) == "step 120/200  loss 2.3145  ETA 3 min 7 s");
  CHECK(layout(example(), 27) == "step 120/200  loss 2.3145");
  CHECK(layout(example(), 10) == "step 120/");
  LiveProgress wild = example();
  wild.loss = -1.95e30;
  for (int columns = 2; columns < 200; ++columns) {
    CAPTURE(columns);
    const std::string line = layout(wild, columns);
    REQUIRE(line.size() < static_cast<size_t>(columns));
    REQUIRE(line.find('\n') == line.npos);
    if (columns > 40) REQUIRE(line.find("loss -1.95e+30") != line.npos);
  }
  CHECK(layout(wild, 0).size() == 1);
}

TEST_CASE("a live line removes what it has drawn, also after the terminal became narrower", "[launch][live_line]") {
  LiveLine line;
  CHECK(line.draw(80).empty());
  CHECK(line.erase(80).empty());
  line.set(example());
  const std::string drawn = layout(example(), 80);
  CHECK(line.draw(80) == "\x1b[?7l" + drawn + "\x1b[?7h\x1b[K");
  CHECK_FALSE(line.is_outdated(80));
  CHECK(line.is_outdated(40));
  REQUIRE((drawn.size() > 40 && drawn.size() <= 80));
  CHECK(line.erase(40) == "\r\x1b[1A\x1b[J");
  CHECK(line.erase(40).empty());  // it is gone already
  line.draw(80);
  CHECK(line.erase(80) == "\r\x1b[J");
  line.draw(80);
  CHECK(line.keep(80) == "\r\x1b[J\x1b[?7l" + drawn + "\x1b[?7h\x1b[K\n");
  CHECK_FALSE(line.has_progress());
  CHECK(line.keep(80).empty());
}

TEST_CASE("records are read as they were written, and other text is none", "[launch][live_line]") {
  const std::string record = live::progress_record(example());
  CHECK(live::parse_progress(record.substr(2)) == example());
  LiveProgress diverged{.step = 1, .total_steps = 2, .loss = std::numeric_limits<double>::infinity()};
  const auto read = live::parse_progress(live::progress_record(diverged).substr(2));
  REQUIRE(read);
  CHECK(std::isnan(read->loss));
  CHECK_FALSE(read->epoch);
  for (const char* text : {"", "{}", "[1]", "{\"step\": \"x\"}", "{\"step\": 1", "null"}) {
    CHECK_FALSE(live::parse_progress(text));
  }
}

TEST_CASE("records are taken out of a stream, in whatever pieces it arrives", "[launch][live_line]") {
  const std::string mark(1, live::kMark);
  const std::string bytes =
      "one\n" + live::plain_line_record("step 1") + "two " + mark + "x\n" + live::end_record() + mark + "\nthree";
  for (size_t at_once = 1; at_once <= bytes.size(); ++at_once) {
    CAPTURE(at_once);
    CHECK(pieces_of(bytes, at_once) ==
          std::vector<std::string>{"tone\n", "lstep 1", "ttwo " + mark + "x\n", "e", "t" + mark + "\nthree"});
  }
  // What is never ended, or too long, is text.
  CHECK(pieces_of(mark + "p{", 1) == std::vector<std::string>{"t" + mark + "p{"});
  const std::string endless = mark + std::string(100'000, 'p');
  CHECK(pieces_of(endless, 1000) == std::vector<std::string>{"t" + endless});
}
