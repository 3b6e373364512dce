#include "launch/report/curves.hpp"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>
#include <optional>
#include <unordered_map>
#include <utility>

#include "base/json_depth.hpp"

namespace dslaunch::launch {
namespace {

constexpr double kGap = std::numeric_limits<double>::quiet_NaN();

using Fields = std::vector<std::pair<std::string_view, double>>;

// Reads one flat object without copies: a run of a million steps has a file of 200 MB.
class FlatObject {
 public:
  explicit FlatObject(std::string_view text) : at_(text.data()), end_(text.data() + text.size()) {}

  // False: not a flat object, or damaged; a parser decides.
  bool read(Fields& fields) {
    fields.clear();
    if (!take('{')) return false;
    if (take('}')) return at_end();
    do {
      std::string_view key;
      if (!read_text(key) || !take(':') || !read_value(key, fields)) return false;
    } while (take(','));
    return take('}') && at_end();
  }

 private:
  void skip_blanks() {
    while (at_ != end_ && (*at_ == ' ' || *at_ == '\t' || *at_ == '\r')) ++at_;
  }
  bool at_end() {
    skip_blanks();
    return at_ == end_;
  }
  bool take(char wanted) {
    skip_blanks();
    if (at_ == end_ || *at_ != wanted) return false;
    ++at_;
    return true;
  }
  bool take_word(std::string_view word) {
    if (static_cast<size_t>(end_ - at_) < word.size() || std::string_view(at_, word.size()) != word) return false;
    at_ += word.size();
    return true;
  }
  bool read_text(std::string_view& text) {
    if (!take('"')) return false;
    const char* begin = at_;
    while (at_ != end_ && *at_ != '"' && *at_ != '\\') ++at_;
    if (at_ == end_ || *at_ == '\\') return false;
    text = {begin, static_cast<size_t>(at_ - begin)};
    ++at_;
    return true;
  }
  bool read_value(std::string_view key, Fields& fields) {
    skip_blanks();
    if (at_ == end_) return false;
    if (*at_ == '"') {
      std::string_view ignored;
      return read_text(ignored);
    }
    for (const auto& [word, value] : kWords) {
      if (!take_word(word)) continue;
      fields.emplace_back(key, value);
      return true;
    }
    double value = 0;
    const auto [stop, error] = std::from_chars(at_, end_, value);
    if (stop == at_) return false;
    at_ = stop;
    // Beyond a double: as good as infinite.
    fields.emplace_back(key, error == std::errc() ? value : kGap);
    return true;
  }

  static constexpr std::array<std::pair<std::string_view, double>, 6> kWords{
      {{"null", kGap}, {"true", 1}, {"false", 0}, {"NaN", kGap}, {"Infinity", kGap}, {"-Infinity", kGap}}};
  const char* at_;
  const char* const end_;
};

// The slow way, for objects with nested values or escapes. False: not an object.
bool read_with_parser(std::string_view line, std::vector<std::string>& names, Fields& fields) {
  constexpr size_t kMaxLevels = 64;
  if (nests_deeper(line, kMaxLevels)) return false;
  const auto json = nlohmann::json::parse(line, nullptr, /*allow_exceptions=*/false);
  if (!json.is_object()) return false;
  fields.clear();
  names.clear();
  names.reserve(json.size());  // the fields point into it
  for (const auto& [key, value] : json.items()) {
    const bool counts = value.is_number() || value.is_boolean() || value.is_null();
    if (!counts) continue;
    names.push_back(key);
    const double number = value.is_null()      ? kGap
                          : value.is_boolean() ? (value.get<bool>() ? 1 : 0)
                                               : value.get<double>();
    fields.emplace_back(names.back(), number);
  }
  return true;
}

std::optional<double> step_in(const Fields& fields) {
  const auto found = std::find_if(fields.begin(), fields.end(), [](const auto& each) { return each.first == "step"; });
  return found == fields.end() || !std::isfinite(found->second) ? std::nullopt : std::optional(found->second);
}

// The curves of a file being read. A line usually has the keys of the line before, in the same order.
class Collector {
 public:
  explicit Collector(Curves& curves) : curves_(curves) {}

  void add(double step, const Fields& fields) {
    const bool is_evaluation = has(fields, "eval_samples") && !has(fields, "loss");
    for (size_t i = 0; i < fields.size(); ++i) {
      const auto& [key, value] = fields[i];
      if (key == "step") continue;
      Curve& curve = curve_of(key, i);
      // An evaluation of an earlier checkpoint (--eval_only) repeats no step: the run's own values stay.
      if (is_evaluation && !curve.points.empty() && curve.points.back().x >= step) continue;
      add_point(curve, {step, value});
    }
  }

 private:
  static bool has(const Fields& fields, std::string_view key) {
    return std::any_of(fields.begin(), fields.end(), [&](const auto& each) { return each.first == key; });
  }

  Curve& curve_of(std::string_view key, size_t position) {
    auto& all = curves_.all;
    if (position > 0 && position <= all.size() && all[position - 1].key == key) return all[position - 1];
    const auto [found, is_new] = index_.try_emplace(std::string(key), all.size());
    if (is_new) all.push_back({std::string(key), {}, 0, 0});
    return all[found->second];
  }

  void add_point(Curve& curve, Point point) {
    while (!curve.points.empty() && curve.points.back().x >= point.x) {
      if (!std::isfinite(curve.points.back().y)) --curve.num_gaps;
      curve.points.pop_back();
      curves_.num_repeated = std::max(curves_.num_repeated, ++curve.num_replaced);
    }
    if (!std::isfinite(point.y)) {
      point.y = kGap;
      ++curve.num_gaps;
    }
    curve.points.push_back(point);
  }

  Curves& curves_;
  std::unordered_map<std::string, size_t> index_;  // of a key, among all curves
};

// What one bucket keeps of its points.
class Bucket {
 public:
  void add(const Point& point) {
    if (!std::isfinite(point.y)) {
      has_gap_ = true;
      gap_ = point;
      return;
    }
    if (num_ == 0) first_ = low_ = high_ = point;
    if (point.y < low_.y) low_ = point;
    if (point.y > high_.y) high_ = point;
    last_ = point;
    ++num_;
  }

  void move_to(std::vector<Point>& out) {
    std::array<Point, 4> kept{first_, low_, high_, last_};
    std::stable_sort(kept.begin(), kept.end(), [](const Point& a, const Point& b) { return a.x < b.x; });
    const auto end = std::unique(kept.begin(), kept.end());
    if (num_ > 0) out.insert(out.end(), kept.begin(), end);
    if (has_gap_) {
      const auto after = std::find_if(out.begin(), out.end(), [&](const Point& each) { return each.x > gap_.x; });
      out.insert(after, gap_);
    }
    *this = {};
  }

 private:
  Point first_, low_, high_, last_, gap_;
  size_t num_ = 0;
  bool has_gap_ = false;
};

}  // namespace

const Curve* Curves::find(std::string_view key) const {
  const auto found = std::find_if(all.begin(), all.end(), [&](const Curve& each) { return each.key == key; });
  return found == all.end() ? nullptr : &*found;
}

Curves read_curves(std::istream& in) {
  Curves out;
  Collector collector(out);
  Fields fields;
  std::vector<std::string> names;
  std::string line;
  while (std::getline(in, line)) {
    const bool is_last = in.eof();
    if (line.find_first_not_of(" \t\r") == std::string::npos) continue;
    const bool is_read = FlatObject(line).read(fields) || read_with_parser(line, names, fields);
    const auto step = is_read ? step_in(fields) : std::nullopt;
    if (step) {
      ++out.num_lines;
      collector.add(*step, fields);
    } else if (is_last) {
      out.is_cut_off = true;
    } else {
      ++out.num_damaged;
    }
  }
  return out;
}

std::vector<Point> downsample(const std::vector<Point>& points, double first, double last, int num_buckets) {
  if (points.size() <= static_cast<size_t>(num_buckets)) return points;
  const double width = last > first ? (last - first) / num_buckets : 1;
  std::vector<Point> out;
  Bucket bucket;
  int number = 0;
  for (const Point& point : points) {
    const int its = std::clamp(static_cast<int>((point.x - first) / width), 0, num_buckets - 1);
    if (its != number) bucket.move_to(out);
    number = its;
    bucket.add(point);
  }
  bucket.move_to(out);
  return out;
}

}  // namespace dslaunch::launch
