#include "file_io/sweep.hpp"

#include <catch2/catch.hpp>
#include <filesystem>
#include <set>
#include <string>

#include "support/temp_dir.hpp"

using namespace dslaunch;
using namespace dslaunch::file_io;
using namespace std::chrono_literals;

TEST_CASE("a sweep stays within the cores and the bytes in flight", "[file_io][sweep]") {
  const auto all = plan_sweep(2, 64 << 20);
  for (const Setting& each : all) {
    CHECK(each.num_threads <= 2);
    CHECK(each.block_size * each.queue_depth * each.num_threads <= 64 << 20);
  }
  const auto has = [&](const Setting& setting) { return std::find(all.begin(), all.end(), setting) != all.end(); };
  CHECK(has({1 << 20, 32, 2}));
  CHECK(has({256 << 10, 2, 1}));
  CHECK_FALSE(has({4 << 20, 32, 1}));
  CHECK(plan_sweep(4, 1 << 30).size() == 27);
  CHECK(plan_sweep(1, 1).size() == 1);
}

TEST_CASE("the best setting reads and writes the same bytes in the least time", "[file_io][sweep]") {
  // A fast read does not make up for a slow write.
  CHECK(choose_best({{{1, 1, 1}, {10e9, 1e9}}, {{2, 2, 2}, {3e9, 2e9}}}).setting == Setting{2, 2, 2});
  // Within 3 %: fewer threads, then fewer bytes.
  CHECK(choose_best({{{8, 32, 2}, {1.02e9, 1e9}}, {{8, 32, 1}, {1e9, 1e9}}, {{8, 8, 1}, {1.01e9, 0.99e9}}}).setting ==
        Setting{8, 8, 1});
  CHECK(choose_best({{{8, 32, 2}, {1.1e9, 1.1e9}}, {{8, 8, 1}, {1e9, 1e9}}}).setting == Setting{8, 32, 2});
}

TEST_CASE("a meter moves the bytes that it counts", "[file_io][sweep]") {
  const test::TempDir dir;
  StripedFile file({.directories = {dir.path()}, .bytes = 4 << 20, .note = [](const auto&) {}});
  std::set<std::string> notes;
  RateMeter meter(file, 1 << 20, Backend::kThreads, [&](const std::string& line) { notes.insert(line); });
  CHECK(meter.fill(0ms, 2 << 20) >= 2 << 20);
  // The smallest request and one that is longer than what was written.
  for (const Setting& setting : {Setting{4096, 1, 1}, Setting{256 << 10, 2, 2}}) {
    CHECK(meter.measure(setting, true, 1ms) > 0);
    CHECK(meter.measure(setting, false, 1ms) > 0);
  }
  CHECK(notes.empty());
  CHECK(std::filesystem::is_empty(dir.path()));
  CHECK(measure_copy_rate(2, 1ms) > 1e6);
}
