#include "launch/report/chart.hpp"

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <nlohmann/json.hpp>

#include "base/format.hpp"
#include "base/quantity.hpp"
#include "launch/report/html.hpp"

namespace dslaunch::launch {
namespace {

using Json = nlohmann::ordered_json;

// The picture's own units; the page scales it to about one pixel each.
constexpr double kWidth = 420, kHeight = 210, kLeft = 58, kRight = 18, kTop = 10, kBottom = 26;
constexpr int kBuckets = 350;  // one for each unit of width
constexpr size_t kHoverPoints = 200;
constexpr size_t kMaxDots = 40;  // a curve of few points shows each
constexpr size_t kMaxMarkers = 200;
// Curves over more orders of magnitude than this get a logarithmic axis, if they are positive.
constexpr double kLogarithmicFrom = 300;

std::string number(double value) {
  return fmt::format("{:.1f}", value);
}

// From values to positions on the picture.
struct Axis {
  double low = 0, high = 1, from = 0, to = 1;
  bool logarithmic = false;

  double at(double value) const {
    const double share = logarithmic ? std::log(value / low) / std::log(high / low) : (value - low) / (high - low);
    return from + share * (to - from);
  }
};

struct Limits {
  double low = std::numeric_limits<double>::infinity(), high = -std::numeric_limits<double>::infinity();

  void take(double value) {
    if (!std::isfinite(value)) return;
    low = std::min(low, value);
    high = std::max(high, value);
  }
  bool any() const { return low <= high; }
};

Axis value_axis(const Limits& limits, bool from_zero) {
  Axis axis{.low = limits.low, .high = limits.high, .from = kHeight - kBottom, .to = kTop};
  axis.logarithmic = !from_zero && limits.low > 0 && limits.high / limits.low > kLogarithmicFrom;
  if (axis.logarithmic) return axis;
  if (from_zero) axis.low = std::min(0.0, axis.low);
  const double margin = (axis.high - axis.low) * 0.05;
  // Far from zero a double has no values between neighbours.
  const double least = std::max(std::abs(axis.high), std::abs(axis.low)) * 1e-6;
  if (margin > least) {
    axis.high += margin;
    if (!from_zero) axis.low -= margin;
    return axis;
  }
  const double around = axis.high == 0 ? 1 : std::abs(axis.high) * 0.1;
  axis.high += around;
  if (!from_zero || axis.low != 0) axis.low -= around;
  return axis;
}

// Round in the unit of bytes that the highest value is shown in.
std::vector<double> byte_grid(const Axis& axis) {
  double unit = 1;
  while (axis.high / unit >= 1024) unit *= 1024;
  std::vector<double> out = grid_values(axis.low / unit, axis.high / unit, 4);
  for (double& value : out) value *= unit;
  return out;
}

std::vector<double> grid_of(const Axis& axis, Unit unit) {
  if (unit == Unit::kBytes) return byte_grid(axis);
  if (!axis.logarithmic) return grid_values(axis.low, axis.high, 4);
  std::vector<double> out;
  const int first = static_cast<int>(std::ceil(std::log10(axis.low) - 1e-9));
  const int last = static_cast<int>(std::floor(std::log10(axis.high) + 1e-9));
  const int stride = std::max(1, (last - first + 4) / 5);
  for (int decade = first; decade <= last; decade += stride) out.push_back(std::pow(10.0, decade));
  return out;
}

// Short, since grid values are round.
std::string tick_text(double value, Unit unit) {
  if (unit == Unit::kLoss) return fmt::format("{:.5g}", value);
  if (unit == Unit::kMilliseconds)
    return value >= 1e4 ? fmt::format("{:.4g} s", value / 1e3) : fmt::format("{:g} ms", value);
  if (unit == Unit::kPerSecond && std::abs(value) < 1000) return fmt::format("{:.4g}", value);
  return value_text(value, unit);
}

std::string horizontal_grid(const Axis& axis, Unit unit) {
  std::string out;
  for (const double value : grid_of(axis, unit)) {
    const std::string y = number(axis.at(value));
    out += fmt::format(R"(<line class="grid" x1="{}" x2="{}" y1="{}" y2="{}"/>)", kLeft, kWidth - kRight, y, y);
    out += fmt::format(R"(<text class="tick" x="{}" y="{}" dy="4" text-anchor="end">{}</text>)", kLeft - 6, y,
                       tick_text(value, unit));
  }
  return out;
}

std::string step_text(double step) {
  return step < 1e5 ? fmt::format("{:g}", step) : format_rate(step);
}

std::string vertical_ticks(const Axis& axis, const std::string& title) {
  std::string out;
  for (const double step : grid_values(axis.low, axis.high, 4)) {
    if (step != std::floor(step)) continue;
    out += fmt::format(R"(<text class="tick" x="{}" y="{}" text-anchor="middle">{}</text>)", number(axis.at(step)),
                       kHeight - 10, step_text(step));
  }
  return out + fmt::format(R"(<text class="tick" x="{}" y="{}" text-anchor="end">{}</text>)", kLeft - 6, kHeight - 10,
                           escape_html(title));
}

// "M x y L x y …", a new part after every gap; and dots, for parts of a single point and for curves of few.
std::string draw_line(const ChartLine& line, const Axis& x, const Axis& y) {
  const auto points = downsample(line.points, x.low, x.high, kBuckets);
  std::string path, dots;
  const bool shows_all = points.size() <= kMaxDots;
  const auto is_gap = [&](size_t i) { return i >= points.size() || !std::isfinite(points[i].y); };
  for (size_t i = 0; i < points.size(); ++i) {
    if (is_gap(i)) continue;
    const std::string at_x = number(x.at(points[i].x)), at_y = number(y.at(points[i].y));
    const bool begins = i == 0 || is_gap(i - 1);
    path += fmt::format("{}{} {}", begins ? "M" : "L", at_x, at_y);
    if (shows_all || (begins && is_gap(i + 1))) {
      dots += fmt::format(R"(<circle class="dot" cx="{}" cy="{}" r="2.2"/>)", at_x, at_y);
    }
  }
  return fmt::format(R"(<g class="line c{} r{}{}"><path d="{}"/>{}</g>)", line.color, line.run,
                     line.dashed ? " dashed" : "", path, dots);
}

// The mean of each line in each of the buckets that has values, the lines below it added.
std::string draw_stack(const Chart& chart, const Axis& x, const std::function<double(double)>& y) {
  constexpr int kAreas = 120;
  const auto bucket_of = [&](double step) {
    return std::clamp(static_cast<int>((step - x.low) / (x.high - x.low) * kAreas), 0, kAreas - 1);
  };
  std::vector<double> below(kAreas, 0);
  std::string out;
  for (const ChartLine& line : chart.lines) {
    std::vector<double> sums(kAreas, 0), counts(kAreas, 0);
    for (const Point& point : line.points) {
      if (!std::isfinite(point.y)) continue;
      sums[static_cast<size_t>(bucket_of(point.x))] += point.y;
      counts[static_cast<size_t>(bucket_of(point.x))] += 1;
    }
    std::string upper, lower;
    for (size_t i = 0; i < kAreas; ++i) {
      if (counts[i] == 0) continue;
      const double step = x.low + (static_cast<double>(i) + 0.5) / kAreas * (x.high - x.low);
      const double top = below[i] + sums[i] / counts[i];
      const std::string at = number(x.at(step));
      upper += fmt::format("{}{} {}", upper.empty() ? "M" : "L", at, number(y(top)));
      lower.insert(0, fmt::format("L{} {}", at, number(y(below[i]))));
      below[i] = top;
    }
    if (!upper.empty()) {
      out += fmt::format(R"(<path class="area c{} r{}" d="{}{}Z"/>)", line.color, line.run, upper, lower);
    }
  }
  return out;
}

std::string draw_marker(const ChartMarker& marker, const Axis& x) {
  const double at = x.at(std::clamp(marker.step, x.low, x.high));
  const std::string group = fmt::format(R"(<g class="c{} r{}">)", marker.color, marker.run);
  const std::string title = fmt::format("<title>{}</title>", escape_html(marker.text));
  if (marker.kind == MarkerKind::kCheckpoint) {
    return fmt::format(R"({}<path class="checkpoint" d="M{} {}l-3.5 6h7Z">{}</path></g>)", group, number(at),
                       kHeight - kBottom, title);
  }
  const char* name = marker.kind == MarkerKind::kFailure ? "failure" : "restart";
  std::string out = fmt::format(R"({}<line class="{}" x1="{}" x2="{}" y1="{}" y2="{}">{}</line>)", group, name,
                                number(at), number(at), kTop, kHeight - kBottom, title);
  if (marker.kind == MarkerKind::kFailure) {
    out += fmt::format(R"(<text class="failure" x="{}" y="{}" text-anchor="middle">&#10005;</text>)", number(at),
                       kTop + 8);
  }
  return out + "</g>";
}

std::string draw_markers(const Chart& chart, const Axis& x) {
  std::string out;
  // Those of one kind on the same unit of width hide each other.
  std::vector<std::pair<int, int>> drawn;
  for (const ChartMarker& marker : chart.markers) {
    const std::pair place{static_cast<int>(marker.kind) + 8 * marker.run,
                          static_cast<int>(x.at(std::clamp(marker.step, x.low, x.high)) / 2)};
    if (drawn.size() >= kMaxMarkers || std::find(drawn.begin(), drawn.end(), place) != drawn.end()) continue;
    drawn.push_back(place);
    out += draw_marker(marker, x);
  }
  return out;
}

// What the script shows under the pointer: about every n-th point as it was measured.
std::string hover_data(const Chart& chart, const StepRange& range) {
  Json lines = Json::array();
  for (const ChartLine& line : chart.lines) {
    Json points = Json::array();
    const size_t stride = line.points.size() / kHoverPoints + 1;
    for (size_t i = 0; i < line.points.size(); i += stride) {
      const Point& point = line.points[std::min(i + stride - 1, line.points.size() - 1)];
      if (!std::isfinite(point.y)) continue;
      points.push_back({point.x, value_text(point.y, chart.unit)});
    }
    lines.push_back({{"label", line.label}, {"color", line.color}, {"run", line.run}, {"points", std::move(points)}});
  }
  const Json data{{"first", range.first},     {"last", range.last}, {"left", kLeft},
                  {"right", kWidth - kRight}, {"top", kTop},        {"bottom", kHeight - kBottom},
                  {"lines", std::move(lines)}};
  return escape_script_json(data.dump(-1, ' ', false, Json::error_handler_t::replace));
}

const Point* last_value(const ChartLine& line) {
  const auto found =
      std::find_if(line.points.rbegin(), line.points.rend(), [](const Point& point) { return std::isfinite(point.y); });
  return found == line.points.rend() ? nullptr : &*found;
}

std::string describe(const Chart& chart) {
  std::string text;
  for (const ChartLine& line : chart.lines) {
    Limits limits;
    for (const Point& point : line.points) limits.take(point.y);
    const Point* last = last_value(line);
    if (last == nullptr) continue;
    text += fmt::format("{}{}: {} at step {}, lowest {}, highest {}", text.empty() ? "" : "; ", line.label,
                        value_text(last->y, chart.unit), step_text(last->x), value_text(limits.low, chart.unit),
                        value_text(limits.high, chart.unit));
  }
  return text;
}

std::string svg_begin(const std::string& id, const std::string& title, const std::string& description) {
  return fmt::format(
      R"(<svg viewBox="0 0 {0} {1}" role="img" aria-labelledby="{2}-t {2}-d"><title id="{2}-t">{3}</title><desc id="{2}-d">{4}</desc>)",
      kWidth, kHeight, id, escape_html(title), escape_html(description));
}

std::string own_legend(const Chart& chart) {
  std::string out;
  for (const ChartLine& line : chart.lines) {
    out += fmt::format(R"(<span class="key c{}">{}</span>)", line.color, escape_html(line.label));
  }
  return R"(<p class="keys">)" + out + "</p>";
}

// The highest sum of parts.
Limits limits_of_stack(const Chart& chart) {
  Limits limits;
  double high = 0;
  for (const ChartLine& line : chart.lines) {
    double sum = 0, count = 0;
    for (const Point& point : line.points) {
      if (!std::isfinite(point.y)) continue;
      sum += point.y;
      count += 1;
    }
    if (count > 0) high += sum / count;
  }
  limits.take(0);
  if (high > 0) limits.take(high * 1.5);  // above the mean, for buckets with slow steps; higher ones are cut
  return limits;
}

Limits limits_of(const Chart& chart) {
  if (chart.stacked) return limits_of_stack(chart);
  Limits limits;
  for (const ChartLine& line : chart.lines) {
    for (const Point& point : line.points) limits.take(point.y);
  }
  return limits;
}

}  // namespace

StepRange range_of(const std::vector<Chart>& charts) {
  Limits limits;
  for (const Chart& chart : charts) {
    for (const ChartLine& line : chart.lines) {
      if (line.points.empty()) continue;
      limits.take(line.points.front().x);
      limits.take(line.points.back().x);
    }
  }
  if (!limits.any()) return {};
  return {limits.low, std::max(limits.high, limits.low + 1)};
}

std::string draw_chart(const Chart& chart, const StepRange& range) {
  const std::string id = escape_html(chart.id);
  std::string out =
      fmt::format(R"(<figure class="chart" id="{}"><figcaption>{}</figcaption>)", id, escape_html(chart.title));
  const Limits limits = limits_of(chart);
  if (!limits.any()) return out + R"(<p class="empty">no finite value is recorded</p></figure>)";
  const Axis x{.low = range.first, .high = range.last, .from = kLeft, .to = kWidth - kRight};
  const Axis y = value_axis(limits, chart.stacked || chart.unit == Unit::kBytes);
  out += svg_begin(id, chart.title, describe(chart));
  out += horizontal_grid(y, chart.unit) + vertical_ticks(x, chart.x_title);
  if (chart.stacked) {
    out += draw_stack(chart, x, [&](double value) { return std::max(kTop, y.at(value)); });
  } else {
    for (const ChartLine& line : chart.lines) out += draw_line(line, x, y);
  }
  out += draw_markers(chart, x);
  out += R"(<line class="pointer" x1="0" x2="0" y1="0" y2="0"/></svg>)";
  if (chart.shows_labels) out += own_legend(chart);
  if (!chart.note.empty()) out += fmt::format(R"(<p class="keys">{}</p>)", escape_html(chart.note));
  out += fmt::format(R"(<script type="application/json">{}</script></figure>)", hover_data(chart, range));
  return out + "\n";
}

std::string draw_bars(const Bars& bars) {
  const std::string id = escape_html(bars.id);
  std::string out = fmt::format(R"(<figure class="chart r{}" id="{}"><figcaption>{}</figcaption>)", bars.run, id,
                                escape_html(bars.title));
  Limits limits;
  for (const auto* values : {&bars.values, &bars.lowest, &bars.highest}) {
    for (const double value : *values) limits.take(value);
  }
  if (!limits.any()) return out + R"(<p class="empty">no finite value is recorded</p></figure>)";
  const Axis y = value_axis(limits, /*from_zero=*/true);
  const size_t group = (bars.values.size() + kMaxBars - 1) / kMaxBars;
  const size_t num_bars = (bars.values.size() + group - 1) / group;
  const double width = (kWidth - kRight - kLeft) / static_cast<double>(num_bars);
  out += svg_begin(id, bars.title,
                   fmt::format("{} ranks, {} to {}", bars.values.size(), value_text(limits.low, bars.unit),
                               value_text(limits.high, bars.unit)));
  out += horizontal_grid(y, bars.unit);
  for (size_t i = 0; i < num_bars; ++i) {
    const size_t first = i * group, end = std::min(first + group, bars.values.size());
    Limits mean, whisker;
    for (size_t rank = first; rank < end; ++rank) {
      mean.take(bars.values[rank]);
      if (rank < bars.lowest.size()) whisker.take(bars.lowest[rank]);
      if (rank < bars.highest.size()) whisker.take(bars.highest[rank]);
    }
    if (!mean.any()) continue;
    const double left = kLeft + width * static_cast<double>(i);
    const std::string ranks =
        end - first == 1 ? fmt::format("rank {}", first) : fmt::format("ranks {}-{}", first, end - 1);
    out += fmt::format(R"(<rect class="bar c{}" x="{}" y="{}" width="{}" height="{}"><title>{}: {}</title></rect>)",
                       bars.color, number(left + width * 0.15), number(y.at(mean.high)), number(width * 0.7),
                       number(std::max(0.5, y.at(0) - y.at(mean.high))), ranks, value_text(mean.high, bars.unit));
    if (whisker.any()) {
      out += fmt::format(R"(<line class="whisker" x1="{0}" x2="{0}" y1="{1}" y2="{2}"/>)", number(left + width / 2),
                         number(y.at(whisker.low)), number(y.at(whisker.high)));
    }
  }
  for (const double each : grid_values(0, static_cast<double>(bars.values.size() - 1), 6)) {
    if (each != std::floor(each)) continue;
    out +=
        fmt::format(R"(<text class="tick" x="{}" y="{}" text-anchor="middle">{:g}</text>)",
                    number(kLeft + width * (std::floor(each / static_cast<double>(group)) + 0.5)), kHeight - 10, each);
  }
  out += fmt::format(R"(<text class="tick" x="{}" y="{}" text-anchor="end">rank</text></svg></figure>)", kLeft - 6,
                     kHeight - 10);
  return out + "\n";
}

std::string value_text(double value, Unit unit) {
  if (!std::isfinite(value)) return "-";
  switch (unit) {
    case Unit::kLoss:
      return format_loss(value);
    case Unit::kRate:
      return value == 0 ? "0" : fmt::format("{:.3g}", value);
    case Unit::kPerSecond:
      return format_rate(value);
    case Unit::kMilliseconds:
      return value == 0 ? "0 ms" : format_ms(value) + " ms";
    case Unit::kBytes:
      break;
    case Unit::kPlain:
      return std::abs(value) < 1e5 ? fmt::format("{:.5g}", value) : fmt::format("{:.3g}", value);
  }
  constexpr const char* kUnits[] = {"B", "KiB", "MiB", "GiB", "TiB", "PiB"};
  size_t at = 0;
  for (; std::abs(value) >= 1024 && at + 1 < std::size(kUnits); ++at) value /= 1024;
  const double size = std::abs(value);
  const int decimals = at == 0 || size >= 99.95 ? 0 : size >= 9.995 ? 1 : 2;
  return fmt::format("{:.{}f} {}", value, decimals, kUnits[at]);
}

std::vector<double> grid_values(double low, double high, int wanted) {
  std::vector<double> out;
  if (!(high > low)) return {low};
  const double raw = (high - low) / wanted;
  const double power = std::pow(10.0, std::floor(std::log10(raw)));
  const double share = raw / power;
  const double stride = power * (share < 1.5 ? 1 : share < 3 ? 2 : share < 7 ? 5 : 10);
  const double first = std::ceil(low / stride - 1e-9) + 0.0;  // not -0
  for (double i = first; i * stride <= high + stride * 1e-9 && out.size() < 20; ++i) out.push_back(i * stride);
  return out;
}

}  // namespace dslaunch::launch
