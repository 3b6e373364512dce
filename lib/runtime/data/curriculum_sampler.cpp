#include "runtime/data/curriculum_sampler.hpp"

#include <algorithm>
#include <limits>
#include <numeric>
#include <span>

#include "base/error.hpp"
#include "base/format.hpp"
#include "config/difficulty.hpp"

namespace dslaunch::runtime {
namespace {

using Metric = CurriculumIndex::Metric;

constexpr int64_t kBelowAll = std::numeric_limits<int64_t>::min();

[[noreturn]] void refuse(const Metric& metric, const std::string& what) {
  throw UserError(ExitCode::kBadInput, fmt::format("curriculum metric '{}': {}", metric.config.name, what));
}

void require_all_samples(const Metric& metric, int64_t num_samples) {
  const std::string& path = metric.config.index_to_sample_path;
  const auto& samples = metric.samples.values;
  if (std::ssize(samples) != num_samples) {
    refuse(
        metric,
        fmt::format("'{}' has {} samples, and the training data has {}: analyze this data again (tools/analyze_data)",
                    path, samples.size(), num_samples));
  }
  std::vector<bool> is_known(samples.size());
  for (const int64_t sample : samples) {
    if (sample >= 0 && sample < num_samples && !is_known[static_cast<size_t>(sample)]) {
      is_known[static_cast<size_t>(sample)] = true;
      continue;
    }
    refuse(metric, fmt::format("'{}' has sample {} {}; it does not belong to this training data of {} samples", path,
                               sample, sample < 0 || sample >= num_samples ? "" : "twice", num_samples));
  }
}

void read_values(Metric& metric) {
  const std::string& path = metric.config.index_to_metric_path;
  metric.values = read_index_rows(path).values;
  if (metric.values.size() == metric.samples.size()) return;
  refuse(metric, fmt::format("'{}' has {} values, and '{}' has {} rows: do the two files belong together?", path,
                             metric.values.size(), metric.config.index_to_sample_path, metric.samples.size()));
}

Metric read_metric(const config::CurriculumMetric& config, int64_t num_samples) {
  Metric metric{config, {}, {}};
  if (config.is_single_cluster) return metric;
  metric.samples = read_index_rows(config.index_to_sample_path);
  require_all_samples(metric, num_samples);
  if (!config.by_percentile) {
    read_values(metric);
  } else if (config.difficulty.maximum > num_samples) {
    refuse(metric, fmt::format("percentile difficulties divide the samples into max_difficulty {} parts, and there are "
                               "only {} samples; make it smaller",
                               config.difficulty.maximum, num_samples));
  }
  return metric;
}

// Samples whose value lies above `after`, up to `until`.
std::vector<int64_t> samples_by_value(const Metric& metric, int64_t after, int64_t until) {
  std::vector<int64_t> out;
  for (size_t row = 0; row < metric.values.size(); ++row) {
    const bool is_above = after == kBelowAll || metric.values[row] > after;
    if (!is_above || metric.values[row] > until) continue;
    const auto samples = metric.samples.row(row);
    out.insert(out.end(), samples.begin(), samples.end());
  }
  return out;
}

// The last part also has what does not divide.
std::vector<int64_t> samples_by_percentile(const Metric& metric, int64_t after, int64_t until) {
  const auto& samples = metric.samples.values;
  const int64_t parts = metric.config.difficulty.maximum, per_part = std::ssize(samples) / parts;
  const int64_t begin = std::max<int64_t>(0, after == kBelowAll ? 0 : after * per_part);
  const int64_t end = until == parts ? std::ssize(samples) : until * per_part;
  if (begin >= end) return {};
  return {samples.begin() + begin, samples.begin() + end};
}

std::vector<int64_t> samples_between(const Metric& metric, int64_t after, int64_t until) {
  return metric.config.by_percentile ? samples_by_percentile(metric, after, until)
                                     : samples_by_value(metric, after, until);
}

std::vector<int64_t> all_samples(int64_t num_samples) {
  std::vector<int64_t> out(static_cast<size_t>(num_samples));
  std::iota(out.begin(), out.end(), 0);
  return out;
}

std::string describe(const Metric& metric, int64_t difficulty) {
  if (metric.config.is_single_cluster) return {};
  const std::string what = fmt::format("'{}' has difficulty {}", metric.config.name, difficulty);
  if (metric.values.empty()) return what;
  const auto [least, most] = std::minmax_element(metric.values.begin(), metric.values.end());
  return fmt::format("{} and its values are {} to {}", what, *least, *most);
}

}  // namespace

std::shared_ptr<const CurriculumIndex> read_curriculum_index(const config::DataEfficiency& efficiency,
                                                             int64_t num_samples) {
  if (efficiency.metrics.empty()) return nullptr;
  auto index = std::make_shared<CurriculumIndex>();
  index->num_samples = num_samples;
  index->seed = efficiency.seed;
  for (const auto& metric : efficiency.metrics) index->metrics.push_back(read_metric(metric, num_samples));
  CurriculumSampler(index, 1).next_batch();
  return index;
}

CurriculumSampler::CurriculumSampler(std::shared_ptr<const CurriculumIndex> index, int64_t train_batch)
    : index_(std::move(index)), train_batch_(static_cast<size_t>(train_batch)), random_(index_->seed) {}

std::vector<int64_t> CurriculumSampler::next_batch() {
  step_ += 1;
  const Difficulties now = difficulties_at(step_);
  if (now != difficulties_) add_cluster(now);
  difficulties_ = now;
  if (clusters_.empty()) {
    std::string of_metrics;
    for (size_t i = 0; i < now.size(); ++i) {
      const std::string each = describe(index_->metrics[i], now[i]);
      if (!each.empty()) of_metrics += (of_metrics.empty() ? "" : ", ") + each;
    }
    throw UserError(
        ExitCode::kBadInput,
        fmt::format("the curriculum admits no sample at step {}: {}; raise min_difficulty", step_, of_metrics));
  }
  std::vector<int64_t> batch;
  const auto counts = draw_counts();
  for (size_t i = 0; i < clusters_.size(); ++i) draw(clusters_[i], counts[i], batch);
  random_.shuffle(std::span(batch));
  return batch;
}

CurriculumSampler::Difficulties CurriculumSampler::difficulties_at(int64_t step) const {
  Difficulties out;
  for (const auto& metric : index_->metrics) out.push_back(config::difficulty_at(metric.config.difficulty, step));
  return out;
}

// The samples that the change of the difficulties admits.
void CurriculumSampler::add_cluster(const Difficulties& now) {
  const auto& metrics = index_->metrics;
  const auto num_clustered = std::count_if(metrics.begin(), metrics.end(),
                                           [](const Metric& metric) { return !metric.config.is_single_cluster; });
  std::vector<int64_t> samples;
  if (num_clustered > 1) samples = samples_in_all(now);
  if (num_clustered == 0 && clusters_.empty()) samples = all_samples(index_->num_samples);
  for (size_t i = 0; num_clustered == 1 && i < metrics.size(); ++i) {
    if (metrics[i].config.is_single_cluster) continue;
    samples = samples_between(metrics[i], difficulties_.empty() ? kBelowAll : difficulties_[i], now[i]);
  }
  if (samples.empty()) return;
  random_.shuffle(std::span(samples));
  clusters_.push_back({std::move(samples), 0});
}

// Those that every metric admits, in the order of their numbers, without those of earlier clusters.
std::vector<int64_t> CurriculumSampler::samples_in_all(const Difficulties& now) const {
  std::vector<int64_t> common = all_samples(index_->num_samples);
  for (size_t i = 0; i < now.size(); ++i) {
    if (index_->metrics[i].config.is_single_cluster) continue;
    auto own = samples_between(index_->metrics[i], kBelowAll, now[i]);
    std::sort(own.begin(), own.end());
    std::vector<int64_t> both;
    std::set_intersection(common.begin(), common.end(), own.begin(), own.end(), std::back_inserter(both));
    common = std::move(both);
  }
  std::vector<bool> is_in_cluster(static_cast<size_t>(index_->num_samples));
  for (const auto& cluster : clusters_) {
    for (const int64_t sample : cluster.samples) is_in_cluster[static_cast<size_t>(sample)] = true;
  }
  std::erase_if(common, [&](int64_t sample) { return is_in_cluster[static_cast<size_t>(sample)]; });
  return common;
}

// How many samples of the batch each cluster gives: drawn with the clusters' sizes as weights, with NumPy's arithmetic.
std::vector<size_t> CurriculumSampler::draw_counts() {
  double num_samples = 0, sum = 0;
  for (const auto& cluster : clusters_) num_samples += static_cast<double>(cluster.samples.size());
  std::vector<double> ends;
  for (const auto& cluster : clusters_) {
    ends.push_back(sum += static_cast<double>(cluster.samples.size()) / num_samples);
  }
  for (double& end : ends) end /= sum;
  std::vector<size_t> counts(clusters_.size());
  for (size_t i = 0; i < train_batch_; ++i) {
    counts[static_cast<size_t>(std::upper_bound(ends.begin(), ends.end(), random_.next_double()) - ends.begin())] += 1;
  }
  return counts;
}

// A cluster that is used up is shuffled again.
void CurriculumSampler::draw(Cluster& cluster, size_t count, std::vector<int64_t>& batch) {
  const auto take = [&](size_t num) {
    const auto begin = cluster.samples.begin() + static_cast<std::ptrdiff_t>(cluster.position);
    batch.insert(batch.end(), begin, begin + static_cast<std::ptrdiff_t>(num));
    cluster.position += num;
  };
  const size_t left = cluster.samples.size() - cluster.position;
  take(std::min(count, left));
  if (count <= left) return;
  random_.shuffle(std::span(cluster.samples));
  cluster.position = 0;
  take(std::min(count - left, cluster.samples.size()));
}

}  // namespace dslaunch::runtime
