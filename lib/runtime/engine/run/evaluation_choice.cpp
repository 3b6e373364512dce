#include "runtime/engine/run/evaluation_choice.hpp"

#include <algorithm>
#include <cmath>

#include "base/format.hpp"
#include "base/quantity.hpp"
#include "runtime/checkpoint/checkpoint_paths.hpp"

namespace dslaunch::runtime::engine::run {

bool is_better(double value, double than, config::MetricMode mode, double min_delta) {
  if (std::isnan(value)) return false;
  if (std::isnan(than)) return true;
  return mode == config::MetricMode::kMin ? value < than - min_delta : value > than + min_delta;
}

void EarlyStopping::add(EvaluatedValue point) {
  last_ = point;
  if (!best_ || is_better(point.value, best_->value, *options_.mode, options_.min_delta)) {
    best_ = point;
    num_without_ = 0;
  } else {
    ++num_without_;
  }
}

std::optional<std::string> EarlyStopping::reason() const {
  if (num_without_ < options_.max_without_better) return std::nullopt;
  const std::string delta = options_.min_delta > 0 ? fmt::format(" by more than {:g}", options_.min_delta) : "";
  return fmt::format("{} has not become {}{} in {} evaluation{}: {} after step {}, {} after step {}", options_.metric,
                     *options_.mode == config::MetricMode::kMin ? "lower" : "higher", delta, num_without_,
                     num_without_ == 1 ? "" : "s", format_loss(best_->value), best_->step, format_loss(last_->value),
                     last_->step);
}

bool BestCheckpoints::add(EvaluatedValue point) {
  if (std::isnan(point.value)) return false;
  const auto place = std::find_if(values_.begin(), values_.end(), [&](const EvaluatedValue& other) {
    return is_better(point.value, other.value, *options_.mode);
  });
  if (place - values_.begin() >= options_.count) return false;
  values_.insert(place, point);
  if (std::ssize(values_) > options_.count) values_.pop_back();
  return true;
}

std::optional<EvaluatedValue> BestCheckpoints::best() const {
  return values_.empty() ? std::nullopt : std::optional(values_.front());
}

std::string BestCheckpoints::text() const {
  std::string out;
  for (const auto& [step, value] : values_) {
    out += fmt::format("{} {} {}\n", step_name(step), options_.metric, value);
  }
  return out;
}

}  // namespace dslaunch::runtime::engine::run
