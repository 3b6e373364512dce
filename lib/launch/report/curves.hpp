// The curves of a run: metrics.jsonl, and any file of one flat JSON object per line, read back key by key; and what of
// a curve fits into a chart. Files of a run that was killed, edited or copied incompletely are read as far as they go.
#pragma once
#include <cstddef>
#include <cstdint>
#include <istream>
#include <string>
#include <string_view>
#include <vector>

namespace dslaunch::launch {

struct Point {
  double x = 0;
  double y = 0;  // not finite: a step whose value was not finite or not known, a gap in the curve

  bool operator==(const Point&) const = default;
};

struct Curve {
  std::string key;            // "loss"
  std::vector<Point> points;  // x ascending, each once
  size_t num_gaps = 0;
  int64_t num_replaced = 0;  // points of steps that came again

  bool has_values() const { return points.size() > num_gaps; }
};

struct Curves {
  std::vector<Curve> all;    // in the order in which the file first has them
  int64_t num_lines = 0;     // with a step
  int64_t num_damaged = 0;   // lines that are not an object with a step, other than a last line that was cut off
  bool is_cut_off = false;   // the last line ends without a newline and cannot be read
  int64_t num_repeated = 0;  // steps that came again in later lines, which have replaced them

  const Curve* find(std::string_view key) const;  // null: no line has it
};

// Numbers, true and false (1 and 0) and null (a gap), each over "step". Also takes NaN and Infinity, which are not JSON
// but which Python writes. Values of other types are left out. Where steps repeat, after a restart, the later lines
// count.
Curves read_curves(std::istream& in);

// At most four points of each of `num_buckets` equal parts of [first, last]: the first, the lowest, the highest and the
// last, so that no spike is lost however many points there are. A gap between values stays as one point.
std::vector<Point> downsample(const std::vector<Point>& points, double first, double last, int num_buckets);

}  // namespace dslaunch::launch
