#include "launch/report/curves.hpp"

#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <sstream>

#include "base/format.hpp"

using namespace dslaunch::launch;

namespace {

Curves curves_of(const std::string& text) {
  std::istringstream in(text);
  return read_curves(in);
}

std::vector<Point> finite(const std::vector<Point>& points) {
  std::vector<Point> out;
  std::copy_if(points.begin(), points.end(), std::back_inserter(out),
               [](const Point& p) { return std::isfinite(p.y); });
  return out;
}

}  // namespace

TEST_CASE("every number of a metrics line is a point of its curve", "[launch][report][curves]") {
  const Curves curves = curves_of(
      "{\"step\":1,\"loss\":2.5,\"overflow\":false,\"gpu_mem_bytes\":null}\n"
      "{\"step\":2,\"loss\":-1e-3,\"overflow\":true,\"name\":\"x\",\"eval_accuracy\":0.5}\n"
      "{ \"step\" : 3 , \"loss\" : 4, \"nested\": {\"a\": [1, 2]}, \"quoted\\\"key\": 7 }\n");
  CHECK(curves.num_lines == 3);
  CHECK(curves.num_damaged == 0);
  REQUIRE(curves.find("loss") != nullptr);
  CHECK(curves.find("loss")->points == std::vector<Point>{{1, 2.5}, {2, -1e-3}, {3, 4}});
  CHECK(curves.find("overflow")->points == std::vector<Point>{{1, 0}, {2, 1}});
  CHECK(curves.find("eval_accuracy")->points == std::vector<Point>{{2, 0.5}});
  CHECK(curves.find("quoted\"key")->points == std::vector<Point>{{3, 7}});
  CHECK_FALSE(curves.find("gpu_mem_bytes")->has_values());
  CHECK(curves.find("name") == nullptr);
  CHECK(curves.find("nested") == nullptr);
  CHECK(curves.find("step") == nullptr);
}

TEST_CASE("values that are not finite are gaps, in JSON and as Python writes them", "[launch][report][curves]") {
  const Curves curves = curves_of(
      "{\"step\":1,\"loss\":1}\n{\"step\":2,\"loss\":null}\n{\"step\":3,\"loss\":NaN}\n{\"step\":4,\"loss\":-Infinity}"
      "\n"
      "{\"step\":5,\"loss\":1e999}\n{\"step\":6,\"loss\":2}\n");
  CHECK(curves.num_damaged == 0);
  const Curve& loss = *curves.find("loss");
  CHECK(loss.num_gaps == 4);
  CHECK(loss.points.size() == 6);
  CHECK(finite(loss.points) == std::vector<Point>{{1, 1}, {6, 2}});
}

TEST_CASE("damaged lines are counted, a last line that was cut off is none of them", "[launch][report][curves]") {
  const Curves curves =
      curves_of("{\"step\":1,\"loss\":1}\nnonsense\n[1]\n{\"loss\":3}\n\n{\"step\":2,\"loss\":2}\n{\"step\":3,\"lo");
  CHECK(curves.num_lines == 2);
  CHECK(curves.num_damaged == 3);
  CHECK(curves.is_cut_off);
  CHECK_FALSE(curves_of("{\"step\":1,\"loss\":1}").is_cut_off);  // whole, only its newline is missing
  CHECK(curves_of("").num_lines == 0);
}

TEST_CASE("steps that a restart repeats count as in the later lines", "[launch][report][curves]") {
  std::string text;
  for (int step = 1; step <= 5; ++step) text += fmt::format("{{\"step\":{},\"loss\":{}}}\n", step, step);
  text += "{\"step\":5,\"eval_loss\":9}\n";  // of the same step: no repetition
  CHECK(curves_of(text).num_repeated == 0);
  text += "{\"step\":4,\"loss\":40}\n{\"step\":5,\"loss\":50}\n{\"step\":6,\"loss\":60}\n";
  const Curves curves = curves_of(text);
  CHECK(curves.num_repeated == 2);
  CHECK(curves.find("loss")->points == std::vector<Point>{{1, 1}, {2, 2}, {3, 3}, {4, 40}, {5, 50}, {6, 60}});
}

TEST_CASE("an evaluation of an earlier checkpoint repeats no step", "[launch][report][curves]") {
  const Curves curves = curves_of(
      "{\"step\":1,\"loss\":3,\"eval_loss\":4}\n{\"step\":2,\"loss\":2,\"eval_loss\":3}\n"
      "{\"step\":1,\"eval_loss\":4.5,\"eval_samples\":8}\n{\"step\":3,\"eval_loss\":1,\"eval_samples\":8}\n");
  CHECK(curves.num_repeated == 0);
  CHECK(curves.find("eval_loss")->points == std::vector<Point>{{1, 4}, {2, 3}, {3, 1}});
}

TEST_CASE("a downsampled curve keeps the extremes of every part", "[launch][report][curves]") {
  // A ramp with one spike up and one down: of each bucket of 100 points the first, the last and the spikes remain.
  std::vector<Point> points;
  for (int i = 0; i < 10'000; ++i) points.push_back({double(i), double(i)});
  points[1234].y = 1e9;
  points[8765].y = -1e9;
  const auto few = downsample(points, 0, 9999, 100);
  CHECK(few.size() <= 400);
  CHECK(std::is_sorted(few.begin(), few.end(), [](const Point& a, const Point& b) { return a.x < b.x; }));
  CHECK(std::find(few.begin(), few.end(), Point{1234, 1e9}) != few.end());
  CHECK(std::find(few.begin(), few.end(), Point{8765, -1e9}) != few.end());
  CHECK(few.front() == Point{0, 0});
  CHECK(few.back() == Point{9999, 9999});
  // Without spikes: first and last of each bucket, so two points each.
  for (int i : {1234, 8765}) points[size_t(i)].y = i;
  CHECK(downsample(points, 0, 9999, 100).size() == 200);
  CHECK(downsample(points, 0, 9999, 10'000) == points);
}

TEST_CASE("a downsampled curve keeps its gaps", "[launch][report][curves]") {
  std::vector<Point> points;
  for (int i = 0; i < 1000; ++i) points.push_back({double(i), i == 505 ? NAN : 1.0});
  const auto few = downsample(points, 0, 999, 10);
  const auto gap = std::find_if(few.begin(), few.end(), [](const Point& p) { return std::isnan(p.y); });
  REQUIRE(gap != few.end());
  CHECK(gap->x == 505);
  CHECK(std::prev(gap)->x < 505);
  CHECK(std::next(gap)->x > 505);
  CHECK(std::isnan(downsample(std::vector<Point>(100, {1, NAN}), 1, 1, 10).front().y));
}
