// One chart of the report: an SVG picture that needs no script, and the values that the page's script shows under the
// pointer. Pure.
#pragma once
#include <string>
#include <vector>

#include "launch/report/curves.hpp"

namespace dslaunch::launch {

enum class Unit { kPlain, kLoss, kRate, kPerSecond, kMilliseconds, kBytes };

// A curve in the colour number `color` of the page; `run`: the run that it belongs to, which the reader can hide.
struct ChartLine {
  std::string label;
  int color = 0, run = 0;
  std::vector<Point> points;
  bool dashed = false;  // of an evaluation, beside the line of training
};

enum class MarkerKind { kRestart, kFailure, kCheckpoint };
struct ChartMarker {
  MarkerKind kind = MarkerKind::kRestart;
  int color = 0, run = 0;
  double step = 0;
  std::string text;
};

struct Chart {
  std::string id, title;  // the id is a word
  Unit unit = Unit::kPlain;
  std::vector<ChartLine> lines;
  std::vector<ChartMarker> markers;
  std::string x_title = "step";
  bool stacked = false;       // the lines' values are parts of a sum, drawn as areas on top of each other
  bool shows_labels = false;  // a legend of its own: its lines are not runs
  std::string note = {};      // below the picture; empty: none
};

struct StepRange {
  double first = 0, last = 1;
};
// Of all lines and markers; at least one step wide.
StepRange range_of(const std::vector<Chart>& charts);

// <figure>…</figure>. A chart without a finite value has a line of text instead of a picture.
std::string draw_chart(const Chart& chart, const StepRange& range);

// One bar for each value; of more than kMaxBars, one for each group of neighbours, as high as the highest of them. NaN:
// left out. Whiskers from `lowest` to `highest`.
struct Bars {
  std::string id, title;
  Unit unit = Unit::kPlain;
  int color = 0, run = 0;
  std::vector<double> values, lowest, highest;
};
inline constexpr size_t kMaxBars = 64;
std::string draw_bars(const Bars& bars);

// A value as the page shows it: "1.95e+30", "12.3k", "13.0 GiB".
std::string value_text(double value, Unit unit);

// Round positions for the lines of a grid over [low, high]: about `wanted` of them, all inside.
std::vector<double> grid_values(double low, double high, int wanted);

}  // namespace dslaunch::launch
