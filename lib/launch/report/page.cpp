#include "launch/report/page.hpp"

#include <algorithm>
#include <cmath>
#include <ctime>
#include <functional>
#include <map>
#include <optional>
#include <set>

#include "base/format.hpp"
#include "base/input_wait.hpp"
#include "base/quantity.hpp"
#include "launch/records/job_record.hpp"
#include "launch/report/assets.hpp"
#include "launch/report/chart.hpp"
#include "launch/report/html.hpp"

namespace dslaunch::launch {
namespace {

constexpr int kNumColors = 8;       // page.css has as many
constexpr size_t kMaxRows = 200;    // of a table of events
constexpr size_t kMaxMetrics = 60;  // with a chart, beside the known ones

constexpr const char* kInputTime = "input_ms";  // has a chart where it limits a run

// The charts of known keys; every other key of numbers gets one behind them.
struct KnownChart {
  const char* key;
  const char* title;
  Unit unit;
};
constexpr KnownChart kCharts[] = {
    {"loss", "Loss", Unit::kLoss},
    {"lr", "Learning rate", Unit::kRate},
    {"grad_norm", "Gradient norm", Unit::kRate},
    {"loss_scale", "Loss scale", Unit::kPlain},
    {"tokens_per_s", "Tokens per second", Unit::kPerSecond},
    {"samples_per_s", "Samples per second", Unit::kPerSecond},
    {"step_ms", "Step time", Unit::kMilliseconds},
    {kInputTime, "Step time in which rank 0 waited for its input", Unit::kMilliseconds},
    {"gpu_mem_bytes", "GPU memory of rank 0, peak", Unit::kBytes},
    {"gpu_reserved_bytes", "GPU memory of rank 0, reserved by the allocator, peak", Unit::kBytes},
    {"host_mem_bytes", "Host memory of rank 0", Unit::kBytes},
};
// The parts of a step, with wall_clock_breakdown.
struct StepPart {
  const char* key;
  const char* title;
};
constexpr StepPart kParts[] = {{"forward_ms", "forward"},
                               {"backward_ms", "backward"},
                               {"reduce_ms", "reduction"},
                               {"update_ms", "update, gather"}};
// Without a chart of its own: counts of samples, what the summary tells, what is in the chart of the loss.
constexpr const char* kNoChart[] = {"eval_samples", "overflow", "eval_loss"};

struct KnownFigure {
  const char* key;
  const char* title;
  Unit unit;
};
constexpr KnownFigure kFigures[] = {
    {"busy_ms", "Forward and backward by rank", Unit::kMilliseconds},
    {"step_ms", "Step time by rank", Unit::kMilliseconds},
    {"waiting", "Share of samples in which the rank waited for others", Unit::kPlain},
    {"gpu_mem_bytes", "GPU memory by rank, peak", Unit::kBytes},
    {"host_mem_bytes", "Host memory by rank", Unit::kBytes},
};

int color_of(size_t run) {
  return static_cast<int>(run % kNumColors);
}

std::string element(const char* name, const std::string& text) {
  return fmt::format("<{0}>{1}</{0}>", name, escape_html(text));
}

std::string section(const char* id, const char* title, const std::string& content) {
  if (content.empty()) return {};
  return fmt::format("<section id=\"{0}\" aria-labelledby=\"{0}-h\"><h2 id=\"{0}-h\">{1}</h2>\n{2}</section>\n", id,
                     title, content);
}

std::string row(const std::vector<std::string>& cells, const char* cell = "td") {
  std::string out = "<tr>";
  for (const auto& each : cells) out += element(cell, each);
  return out + "</tr>\n";
}

std::string table(const std::vector<std::string>& heading, const std::string& rows) {
  return "<div class=\"scroll\" tabindex=\"0\"><table><thead>" + row(heading, "th") + "</thead><tbody>\n" + rows +
         "</tbody></table></div>\n";
}

std::string time_text(double seconds) {
  return utc_text(static_cast<int64_t>(seconds));
}

std::string duration_text(double seconds) {
  return format_time(std::chrono::milliseconds(std::llround(std::clamp(seconds, 0.0, 1e10) * 1000)));
}

std::string run_label(const std::vector<RunHistory>& runs, size_t i) {
  const auto same =
      std::count_if(runs.begin(), runs.end(), [&](const auto& each) { return each.name == runs[i].name; });
  return same > 1 ? runs[i].dir : runs[i].name;
}

// ---- summary

struct Best {
  std::optional<Point> first, last, lowest;
};
Best best_of(const Curve* curve) {
  Best out;
  if (curve == nullptr) return out;
  for (const Point& point : curve->points) {
    if (!std::isfinite(point.y)) continue;
    if (!out.first) out.first = point;
    out.last = point;
    if (!out.lowest || point.y < out.lowest->y) out.lowest = point;
  }
  return out;
}

double sum_of(const Curve* curve) {
  double sum = 0;
  if (curve == nullptr) return 0;
  for (const Point& point : curve->points) sum += std::isfinite(point.y) ? point.y : 0;
  return sum;
}

std::string loss_text(const std::optional<Point>& point) {
  return point ? format_loss(point->y) : "-";
}

// Of all steps, weighted with their time.
std::string mean_rate(const Curves& curves, const char* key) {
  const Curve *rate = curves.find(key), *time = curves.find("step_ms");
  if (rate == nullptr || !rate->has_values()) return {};
  double work = 0, seconds = 0;
  for (size_t i = 0; i < rate->points.size(); ++i) {
    const bool is_timed = time != nullptr && i < time->points.size() && time->points[i].x == rate->points[i].x;
    const double weight = is_timed ? time->points[i].y : 1;
    if (!std::isfinite(rate->points[i].y) || !std::isfinite(weight)) continue;
    work += rate->points[i].y * weight;
    seconds += weight;
  }
  return seconds > 0 ? format_rate(work / seconds) : std::string();
}

std::string steps_text(const RunHistory& run) {
  const auto last = run.last_step();
  if (!last) return "0";
  const std::string done = with_separators(static_cast<int64_t>(std::clamp(*last, 0.0, 9e15)));
  return run.total_steps > 0 ? fmt::format("{} of {}", done, with_separators(run.total_steps)) : done;
}

std::vector<std::string> summary_cells(const RunHistory& run) {
  const Best loss = best_of(run.curves.find("loss")), eval = best_of(run.curves.find("eval_loss"));
  const std::string tokens = mean_rate(run.curves, "tokens_per_s"), samples = mean_rate(run.curves, "samples_per_s");
  const auto num_failed =
      std::count_if(run.attempts.begin(), run.attempts.end(), [](const RunAttempt& each) { return each.has_failed(); });
  const size_t num_restarts = run.attempts.empty() ? 0 : run.attempts.size() - 1;
  return {run.state,
          steps_text(run),
          loss_text(loss.last),
          loss.lowest ? fmt::format("{} at step {:g}", format_loss(loss.lowest->y), loss.lowest->x) : "-",
          loss_text(eval.last),
          !tokens.empty()    ? tokens + " tok/s"
          : !samples.empty() ? samples + " samples/s"
                             : "-",
          duration_text(sum_of(run.curves.find("step_ms")) / 1000),
          fmt::format("{:g}", sum_of(run.curves.find("overflow"))),
          fmt::format("{}", num_restarts),
          fmt::format("{}", num_failed)};
}

std::string summary(const std::vector<RunHistory>& runs) {
  std::string rows;
  for (size_t i = 0; i < runs.size(); ++i) {
    std::string cells;
    for (const auto& cell : summary_cells(runs[i])) cells += element("td", cell);
    rows += fmt::format("<tr class=\"r{}\"><th scope=\"row\"><span class=\"key c{}\">{}</span></th>{}</tr>\n", i,
                        color_of(i), escape_html(run_label(runs, i)), cells);
  }
  return table({"run", "state", "steps", "last loss", "best loss", "last eval loss", "mean rate", "time in steps",
                "skipped steps", "starts after the first", "failures"},
               rows);
}

std::string run_list(const std::vector<RunHistory>& runs) {
  std::string out = "<fieldset class=\"runs\"><legend>Runs</legend>";
  for (size_t i = 0; i < runs.size(); ++i) {
    out += fmt::format("<label class=\"key c{}\"><input type=\"checkbox\" checked data-run=\"{}\"> {}</label> ",
                       color_of(i), i, escape_html(run_label(runs, i)));
  }
  return out + "</fieldset>\n";
}

std::string notes(const std::vector<RunHistory>& runs) {
  std::string out;
  for (size_t i = 0; i < runs.size(); ++i) {
    for (const auto& note : runs[i].notes) {
      out += element("li", runs.size() > 1 ? run_label(runs, i) + ": " + note : note);
    }
  }
  return out.empty() ? out : "<ul class=\"notes\">" + out + "</ul>\n";
}

// ---- time axis

struct Span {
  double begin = 0, end = 0;
};

std::optional<Span> span_of(const std::vector<RunHistory>& runs) {
  std::optional<Span> span;
  const auto take = [&](double time) {
    if (!span) span = Span{time, time};
    span->begin = std::min(span->begin, time);
    span->end = std::max(span->end, time);
  };
  for (const auto& run : runs) {
    for (const auto& attempt : run.attempts) {
      take(attempt.began);
      if (attempt.ended) take(*attempt.ended);
    }
    for (const auto& checkpoint : run.checkpoints) take(checkpoint.time);
    if (run.is_running && !run.attempts.empty()) take(static_cast<double>(std::time(nullptr)));
  }
  return span;
}

std::string attempt_text(const RunAttempt& attempt, size_t number) {
  std::string text = fmt::format("start {}: {}", number + 1, time_text(attempt.began));
  if (attempt.ended) text += fmt::format(", {}", duration_text(*attempt.ended - attempt.began));
  if (attempt.first_step) text += fmt::format(", from step {}", *attempt.first_step);
  if (attempt.last_step) text += fmt::format(" to step {}", *attempt.last_step);
  return text;
}

// Of one run, on the time that all runs share: percent of the width, so that texts keep their size on any screen.
std::string track(const RunHistory& run, size_t index, const Span& span) {
  const double length = std::max(span.end - span.begin, 1.0);
  const auto at = [&](double time) { return std::clamp((time - span.begin) / length * 98 + 1, 0.0, 100.0); };
  std::string out = fmt::format(
      "<svg class=\"track c{} r{}\" width=\"100%\" height=\"34\" role=\"img\"><title>{}</title>"
      "<line class=\"grid\" x1=\"0\" x2=\"100%\" y1=\"17\" y2=\"17\"/>",
      color_of(index), index, escape_html("starts, checkpoints and failures of " + run.name + " over time"));
  for (size_t i = 0; i < run.attempts.size(); ++i) {
    const RunAttempt& attempt = run.attempts[i];
    const double left = at(attempt.began), right = at(attempt.ended.value_or(span.end));
    out += fmt::format(
        "<rect class=\"attempt\" x=\"{:.2f}%\" y=\"8\" width=\"{:.2f}%\" height=\"18\" rx=\"2\"><title>{}"
        "</title></rect>",
        left, std::max(right - left, 0.3), escape_html(attempt_text(attempt, i)));
    if (!attempt.has_failed()) continue;
    out += fmt::format(
        "<text class=\"failure\" x=\"{:.2f}%\" y=\"22\" text-anchor=\"middle\">&#10005;<title>{}</title></text>", right,
        escape_html(fmt::format("failed with exit code {}: {}", *attempt.exit_code, attempt.cause)));
  }
  std::set<int> drawn;  // those that would hide each other are drawn once
  for (const auto& checkpoint : run.checkpoints) {
    const double x = at(checkpoint.time);
    if (!drawn.insert(static_cast<int>(x * 4)).second) continue;
    out += fmt::format(
        "<circle class=\"saved\" cx=\"{:.2f}%\" cy=\"17\" r=\"3\"><title>checkpoint of step {}, {}</title>"
        "</circle>",
        x, checkpoint.step, time_text(checkpoint.time));
  }
  return out + "</svg>\n";
}

std::string event_rows(const RunHistory& run, const std::string& label) {
  std::string rows;
  for (size_t i = 0; i < run.attempts.size() && i < kMaxRows; ++i) {
    const RunAttempt& attempt = run.attempts[i];
    const auto step = [](const std::optional<int64_t>& value) { return value ? fmt::format("{}", *value) : "-"; };
    std::string how = attempt.exit_code ? fmt::format("exit code {}", *attempt.exit_code) : "not recorded";
    if (!attempt.exit_code && attempt.last_step) how = "ended";
    if (attempt.restarts) how += ", restarted";
    rows += row({label, i == 0 ? "start" : "start again", time_text(attempt.began),
                 attempt.ended ? duration_text(*attempt.ended - attempt.began) : "-", step(attempt.first_step),
                 step(attempt.last_step), attempt.world_size > 0 ? fmt::format("{}", attempt.world_size) : "-", how});
    if (!attempt.cause.empty()) {
      rows += fmt::format("<tr class=\"cause\"><td colspan=\"8\">{}</td></tr>\n", escape_html(attempt.cause));
    }
  }
  if (run.attempts.size() > kMaxRows) {
    rows += row({label, fmt::format("and {} more", run.attempts.size() - kMaxRows), "", "", "", "", "", ""});
  }
  return rows;
}

std::string time_axis(const std::vector<RunHistory>& runs) {
  const auto span = span_of(runs);
  if (!span) return {};
  std::string out, rows;
  for (size_t i = 0; i < runs.size(); ++i) {
    out += fmt::format("<p class=\"track-name\">{}</p>", escape_html(run_label(runs, i))) + track(runs[i], i, *span);
    rows += event_rows(runs[i], run_label(runs, i));
  }
  out += fmt::format("<p class=\"ends\"><span>{}</span><span>{}</span></p>\n", time_text(span->begin),
                     time_text(span->end));
  out += "<p class=\"hint\">Bars: the ranks run. Dots: checkpoints. Crosses: failures.</p>\n";
  return out + table({"run", "event", "time (UTC)", "lasted", "from step", "to step", "ranks", "end"}, rows);
}

// ---- charts

std::vector<ChartMarker> markers_of(const std::vector<RunHistory>& runs, bool with_checkpoints) {
  std::vector<ChartMarker> out;
  for (size_t i = 0; i < runs.size(); ++i) {
    const auto add = [&](MarkerKind kind, int64_t step, std::string text) {
      out.push_back({kind, color_of(i), static_cast<int>(i), static_cast<double>(step), std::move(text)});
    };
    for (size_t k = 0; k < runs[i].attempts.size(); ++k) {
      const RunAttempt& attempt = runs[i].attempts[k];
      if (k > 0 && attempt.first_step) {
        add(MarkerKind::kRestart, *attempt.first_step, fmt::format("start again from step {}", *attempt.first_step));
      }
      if (attempt.has_failed() && attempt.last_step) {
        add(MarkerKind::kFailure, *attempt.last_step, fmt::format("failed: {}", attempt.cause));
      }
    }
    if (!with_checkpoints) continue;
    for (const auto& saved : runs[i].checkpoints) {
      add(MarkerKind::kCheckpoint, saved.step, fmt::format("checkpoint of step {}", saved.step));
    }
  }
  return out;
}

Chart chart_of(const std::vector<RunHistory>& runs, const std::string& key, const std::string& title, Unit unit) {
  Chart chart{.id = "chart-" + key, .title = title, .unit = unit, .lines = {}, .markers = {}};
  for (size_t i = 0; i < runs.size(); ++i) {
    const Curve* curve = runs[i].curves.find(key);
    // Without a GPU its memory is null in every line; a loss that is never finite is worth a chart that says so.
    if (curve == nullptr || (!curve->has_values() && key != "loss")) continue;
    chart.lines.push_back({run_label(runs, i), color_of(i), static_cast<int>(i), curve->points});
  }
  if (!chart.lines.empty()) chart.markers = markers_of(runs, key == "loss");
  return chart;
}

// The loss of evaluations, in the chart of the training's.
void add_evaluation(const std::vector<RunHistory>& runs, Chart& chart) {
  for (size_t i = 0; i < runs.size(); ++i) {
    const Curve* curve = runs[i].curves.find("eval_loss");
    if (curve == nullptr || !curve->has_values()) continue;
    chart.lines.push_back({run_label(runs, i) + ", evaluation", color_of(i), static_cast<int>(i), curve->points,
                           /*dashed=*/true});
    chart.note = "Dashed: loss of evaluations.";
  }
}

// Of all steps but the first, which always waits for its first batch.
InputWait input_wait_of(const RunHistory& run) {
  InputWait out;
  const Curve *input = run.curves.find(kInputTime), *time = run.curves.find("step_ms");
  if (input == nullptr || time == nullptr) return out;
  for (size_t i = 1; i < std::min(input->points.size(), time->points.size()); ++i) {
    if (input->points[i].x == time->points[i].x) out.add(time->points[i].y, input->points[i].y);
  }
  return out;
}

// What the chart says of runs that their input limits; empty: there are none.
std::string describe_input_limits(const std::vector<RunHistory>& runs) {
  std::string out;
  for (size_t i = 0; i < runs.size(); ++i) {
    const InputWait wait = input_wait_of(runs[i]);
    if (!wait.is_limit()) continue;
    out += runs.size() > 1 ? fmt::format("{}: {}. ", run_label(runs, i), wait.text()) : wait.text() + ". ";
  }
  return out.empty() ? out : fmt::format("The input is the limit: {}To make it faster: {}.", out, input_advice(-1));
}

std::vector<Chart> known_charts(const std::vector<RunHistory>& runs) {
  std::vector<Chart> charts;
  const std::string input_limits = describe_input_limits(runs);
  for (const auto& [key, title, unit] : kCharts) {
    if (key == std::string(kInputTime) && input_limits.empty()) continue;
    Chart chart = chart_of(runs, key, title, unit);
    if (key == std::string(kInputTime)) chart.note = input_limits;
    if (key == std::string("loss")) add_evaluation(runs, chart);
    if (!chart.lines.empty()) charts.push_back(std::move(chart));
  }
  return charts;
}

// Every metric that train.metrics adds, and whatever else a line holds: the first kMaxMetrics of them. `rest` is the
// number of the others.
std::vector<Chart> other_charts(const std::vector<RunHistory>& runs, size_t& rest) {
  std::set<std::string> known;
  for (const auto& each : kCharts) known.insert(each.key);
  for (const auto& each : kParts) known.insert(each.key);
  for (const auto* each : kNoChart) known.insert(each);
  std::vector<Chart> charts;
  for (const auto& run : runs) {
    for (const auto& curve : run.curves.all) {
      if (!curve.has_values() || !known.insert(curve.key).second) continue;
      if (charts.size() == kMaxMetrics) {
        ++rest;
        continue;
      }
      const bool is_loss = curve.key.ends_with("loss");
      charts.push_back(chart_of(runs, curve.key, curve.key, is_loss ? Unit::kLoss : Unit::kPlain));
    }
  }
  return charts;
}

std::vector<Chart> breakdown_charts(const std::vector<RunHistory>& runs) {
  std::vector<Chart> charts;
  for (size_t i = 0; i < runs.size(); ++i) {
    Chart chart{.id = fmt::format("chart-breakdown-{}", i),
                .title = "Step time by phase" + (runs.size() > 1 ? ": " + run_label(runs, i) : std::string()),
                .unit = Unit::kMilliseconds,
                .lines = {},
                .markers = {},
                .stacked = true,
                .shows_labels = true};
    for (const auto& [key, title] : kParts) {
      const Curve* curve = runs[i].curves.find(key);
      if (curve == nullptr || !curve->has_values()) continue;
      chart.lines.push_back({title, static_cast<int>(chart.lines.size()), static_cast<int>(i), curve->points});
    }
    if (!chart.lines.empty()) charts.push_back(std::move(chart));
  }
  return charts;
}

// The value that all points of a chart have; empty: they differ, or are too few to be a curve.
std::optional<double> constant_of(const Chart& chart) {
  std::optional<double> value;
  size_t count = 0;
  for (const ChartLine& line : chart.lines) {
    for (const Point& point : line.points) {
      if (!std::isfinite(point.y)) return std::nullopt;
      if (value && *value != point.y) return std::nullopt;
      value = point.y;
      ++count;
    }
  }
  return count >= 2 * chart.lines.size() ? value : std::nullopt;
}

// A value that never changes is a word, not a picture.
std::string draw_all(const std::vector<Chart>& charts, const StepRange& range) {
  std::string drawn;
  std::vector<std::string> constants;
  for (const Chart& chart : charts) {
    const auto value = constant_of(chart);
    if (value) {
      constants.push_back(fmt::format("{} {}", chart.title, value_text(*value, chart.unit)));
    } else {
      drawn += draw_chart(chart, range);
    }
  }
  std::string out = drawn.empty() ? drawn : "<div class=\"charts\">\n" + drawn + "</div>\n";
  if (!constants.empty()) {
    out += fmt::format("<p class=\"hint\">Constant: {}.</p>\n",
                       escape_html(fmt::format("{}", fmt::join(constants, "; "))));
  }
  return out;
}

std::string charts(const std::vector<RunHistory>& runs) {
  size_t rest = 0;
  const auto known = known_charts(runs), breakdown = breakdown_charts(runs), other = other_charts(runs, rest);
  std::vector<Chart> all = known;
  all.insert(all.end(), other.begin(), other.end());
  const StepRange range = range_of(all);
  std::string training = draw_all(known, range);
  if (training.empty()) training = "<p class=\"empty\">No step is recorded: there are no curves.</p>\n";
  std::string phases = draw_all(breakdown, range);
  if (phases.empty()) {
    phases =
        "<p class=\"empty\">Not recorded. <code>\"wall_clock_breakdown\": true</code> in the config records the "
        "times of forward, backward, reduction and update.</p>\n";
  }
  std::string metrics = draw_all(other, range);
  if (rest > 0) {
    metrics += fmt::format("<p class=\"hint\">Not drawn: {} more; metrics.jsonl has them.</p>\n",
                           with_separators(static_cast<int64_t>(rest)));
  }
  return section("training", "Training", training) + section("metrics", "Other metrics", metrics) +
         section("phases", "Step time by phase", phases);
}

// ---- samples

std::string rows_of(const std::vector<SampleText>& samples, bool has_reference) {
  std::vector<std::string> heading{"step", "prompt", "text"};
  if (has_reference) heading.emplace_back("reference");
  std::string rows;
  for (size_t i = 0; i < std::min(samples.size(), kMaxRows); ++i) {
    std::vector<std::string> cells{fmt::format("{}", samples[i].step), samples[i].prompt, samples[i].text};
    if (has_reference) cells.push_back(samples[i].reference);
    rows += row(cells);
  }
  const std::string rest = samples.size() <= kMaxRows ? ""
                                                      : fmt::format(
                                                            "<p class=\"hint\">Not shown: {} more; "
                                                            "samples.jsonl has them.</p>\n",
                                                            samples.size() - kMaxRows);
  return table(heading, rows) + rest;
}

// Those of the last evaluation; the ones before it folded, the newest first.
std::string samples_of(const RunHistory& run) {
  const bool has_reference = std::any_of(run.samples.begin(), run.samples.end(),
                                         [](const SampleText& each) { return !each.reference.empty(); });
  const auto begin = std::find_if(run.samples.begin(), run.samples.end(),
                                  [&](const SampleText& each) { return each.step == run.samples.back().step; });
  std::vector<SampleText> older(run.samples.begin(), begin);
  std::stable_sort(older.begin(), older.end(), [](const auto& a, const auto& b) { return a.step > b.step; });
  std::string out = rows_of({begin, run.samples.end()}, has_reference);
  if (older.empty()) return out;
  return out + "<details><summary>Earlier evaluations</summary>\n" + rows_of(older, has_reference) + "</details>\n";
}

std::string samples(const std::vector<RunHistory>& runs) {
  std::string out;
  for (size_t i = 0; i < runs.size(); ++i) {
    if (runs[i].samples.empty()) continue;
    if (runs.size() > 1) out += element("h3", run_label(runs, i));
    out += samples_of(runs[i]);
  }
  return out;
}

// ---- ranks

std::string slowest_text(const RankFigure& figure, Unit unit) {
  size_t high = figure.mean.size(), low = figure.mean.size();
  for (size_t rank = 0; rank < figure.mean.size(); ++rank) {
    if (!std::isfinite(figure.mean[rank])) continue;
    if (high == figure.mean.size() || figure.mean[rank] > figure.mean[high]) high = rank;
    if (low == figure.mean.size() || figure.mean[rank] < figure.mean[low]) low = rank;
  }
  if (high == figure.mean.size()) return {};
  return fmt::format("{}: highest on rank {} ({}), lowest on rank {} ({})", figure.key, high,
                     value_text(figure.mean[high], unit), low, value_text(figure.mean[low], unit));
}

std::string ranks_of(const RunHistory& run, size_t index, const std::string& label) {
  std::string out, lines;
  for (const auto& [key, title, unit] : kFigures) {
    const std::string wanted = key;
    const auto found =
        std::find_if(run.ranks.begin(), run.ranks.end(), [&](const auto& each) { return each.key == wanted; });
    if (found == run.ranks.end()) continue;
    const std::string text = slowest_text(*found, unit);
    if (text.empty()) continue;
    lines += element("li", text);
    const bool is_share = unit == Unit::kPlain;
    out += draw_bars({.id = fmt::format("ranks-{}-{}", key, index),
                      .title = title,
                      .unit = unit,
                      .color = color_of(index),
                      .run = static_cast<int>(index),
                      .values = found->mean,
                      .lowest = is_share ? std::vector<double>() : found->lowest,
                      .highest = is_share ? std::vector<double>() : found->highest});
    if (unit != Unit::kMilliseconds || found->spread.empty()) continue;
    const Chart spread{.id = fmt::format("spread-{}-{}", key, index),
                       .title = std::string(title) + ": slowest less fastest",
                       .unit = unit,
                       .lines = {{label, color_of(index), static_cast<int>(index), found->spread}},
                       .markers = {}};
    out += draw_chart(spread, range_of({spread}));
  }
  if (out.empty()) return {};
  return fmt::format("<h3>{}</h3>\n<ul>{}</ul>\n<div class=\"charts\">\n{}</div>\n", escape_html(label), lines, out);
}

std::string ranks(const std::vector<RunHistory>& runs) {
  std::string out;
  for (size_t i = 0; i < runs.size(); ++i) out += ranks_of(runs[i], i, run_label(runs, i));
  if (out.empty()) {
    return "<p class=\"empty\">Not recorded: the launcher records the ranks of a run of several ranks, from its tenth "
           "second on.</p>\n";
  }
  return "<p class=\"hint\">Bars: means over the run. Lines: lowest and highest sample.</p>\n" + out;
}

// ---- config, environment

using Table = std::vector<std::pair<std::string, std::string>>;

// Every key of the tables, with the value of each.
std::string compare_tables(const std::vector<RunHistory>& runs,
                           const std::function<const Table&(const RunHistory&)>& of, bool only_different) {
  std::vector<std::string> keys;
  std::map<std::string, std::vector<std::optional<std::string>>> values;
  for (size_t i = 0; i < runs.size(); ++i) {
    for (const auto& [key, value] : of(runs[i])) {
      auto& row_of_key = values[key];
      if (row_of_key.empty()) {
        row_of_key.resize(runs.size());
        keys.push_back(key);
      }
      row_of_key[i] = value;
    }
  }
  std::string rows;
  for (const auto& key : keys) {
    const auto& each = values[key];
    const bool differs =
        std::any_of(each.begin(), each.end(), [&](const auto& value) { return value != each.front(); });
    if (only_different && !differs) continue;
    std::string cells = fmt::format("<th scope=\"row\"><code>{}</code></th>", escape_html(key));
    for (const auto& value : each) {
      cells += value ? fmt::format("<td><code>{}</code></td>", escape_html(*value)) : "<td class=\"none\">-</td>";
    }
    rows += fmt::format("<tr{}>{}</tr>\n", differs ? " class=\"differs\"" : "", cells);
  }
  if (rows.empty()) return {};
  std::vector<std::string> heading{"key"};
  for (size_t i = 0; i < runs.size(); ++i) heading.push_back(runs.size() > 1 ? run_label(runs, i) : "value");
  return table(heading, rows);
}

const Table& config_of(const RunHistory& run) {
  return run.config;
}
const Table& environment_of(const RunHistory& run) {
  return run.environment;
}

std::string config(const std::vector<RunHistory>& runs) {
  std::string out;
  if (runs.size() > 1) {
    const std::string different = compare_tables(runs, config_of, /*only_different=*/true);
    out += "<h3>Keys that differ</h3>\n" + (different.empty() ? "<p>None.</p>\n" : different);
  }
  const std::string all = compare_tables(runs, config_of, /*only_different=*/false);
  if (all.empty()) return out + "<p class=\"empty\">No config is recorded.</p>\n";
  return out + "<details><summary>All keys of the resolved config</summary>\n" + all + "</details>\n";
}

std::string environment(const std::vector<RunHistory>& runs) {
  const std::string all = compare_tables(runs, environment_of, /*only_different=*/false);
  return all.empty() ? "<p class=\"empty\">Not recorded.</p>\n" : all;
}

std::string files(const std::vector<RunHistory>& runs) {
  std::string rows;
  for (size_t i = 0; i < runs.size(); ++i) {
    std::string traces;
    for (const auto& name : runs[i].traces) traces += (traces.empty() ? "" : ", ") + name;
    rows += row({run_label(runs, i), runs[i].job_id.empty() ? "-" : runs[i].job_id, runs[i].dir,
                 traces.empty() ? "-" : traces});
  }
  return table({"run", "job", "run directory", "traces (open in ui.perfetto.dev)"}, rows);
}

}  // namespace

std::string report_page(const std::vector<RunHistory>& runs) {
  std::string title;
  for (size_t i = 0; i < runs.size(); ++i) title += (i > 0 ? ", " : "") + run_label(runs, i);
  std::string out = "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n";
  out += fmt::format("{} {}\">\n", kReportMark, DSL_VERSION);
  out += "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n";
  out += "<link rel=\"icon\" href=\"data:,\">\n";
  out += fmt::format("<title>{}</title>\n<style>\n{}</style>\n</head>\n<body>\n<main>\n",
                     escape_html("Training report: " + title), kPageStyle);
  out += fmt::format("<header><h1>{}</h1><p class=\"hint\">Made by dslaunch {} at {}</p></header>\n",
                     escape_html(title), DSL_VERSION, utc_text(std::time(nullptr)));
  out += notes(runs) + run_list(runs);
  out += section("summary", "Summary", summary(runs)) + section("time", "Time", time_axis(runs)) + charts(runs);
  out += section("samples", "Samples", samples(runs));
  out += section("ranks", "Ranks", ranks(runs)) + section("config", "Config", config(runs));
  out += section("environment", "Environment", environment(runs)) + section("files", "Files", files(runs));
  out += fmt::format(
      "</main>\n<div id=\"tip\" role=\"status\" hidden></div>\n<script>\n{}</script>\n</body>\n</html>\n", kPageScript);
  return out;
}

}  // namespace dslaunch::launch
