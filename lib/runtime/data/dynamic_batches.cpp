#include "runtime/data/dynamic_batches.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "base/error.hpp"
#include "base/format.hpp"
#include "runtime/data/megatron_file.hpp"
#include "runtime/data/reference_random.hpp"

namespace dslaunch::runtime {
namespace {

using Groups = std::vector<std::vector<int64_t>>;

// All samples that fit into a group at all, in the order in which they are packed.
std::vector<int64_t> pick(const std::vector<int64_t>& lengths, const config::DynamicBatching& config, uint64_t seed) {
  std::vector<int64_t> order(lengths.size());
  std::iota(order.begin(), order.end(), 0);
  if (config.sequence_picking_order == config::PickingOrder::kRandom) PythonRandom(seed).shuffle(std::span(order));
  const auto length = [&](int64_t sample) { return lengths[static_cast<size_t>(sample)]; };
  if (config.sequence_picking_order == config::PickingOrder::kSeqlen) {
    std::stable_sort(order.begin(), order.end(), [&](int64_t a, int64_t b) { return length(a) < length(b); });
  }
  std::erase_if(order, [&](int64_t sample) { return length(sample) > config.max_tokens; });
  return order;
}

// Groups that are packed together get the samples in turn, so many that each is valid; the most that are. The last
// sample of the order is never reached, as in DeepSpeed.
class Packer {
 public:
  Packer(const std::vector<int64_t>& lengths, const config::DynamicBatching& config, size_t num_together)
      : lengths_(lengths), config_(config), num_together_(num_together) {}

  Groups pack(const std::vector<int64_t>& order) const {
    Groups groups;
    for (size_t begin = 0; begin < order.size();) {
      const size_t end = find_end(order, begin);
      if (end == begin) break;
      const size_t first = groups.size();
      groups.resize(first + num_together_);
      for (size_t i = begin; i < end; ++i) groups[first + (i - begin) % num_together_].push_back(order[i]);
      begin = end;
    }
    return groups;
  }

 private:
  size_t find_end(const std::vector<int64_t>& order, size_t begin) const {
    std::vector<int64_t> tokens(num_together_);
    size_t best = begin;
    int64_t size = 0;
    for (size_t end = begin + num_together_; end < order.size(); end += num_together_) {
      for (size_t i = 0; i < num_together_; ++i) {
        tokens[i] += lengths_[static_cast<size_t>(order[end - num_together_ + i])];
      }
      size += 1;
      const bool is_full = *std::max_element(tokens.begin(), tokens.end()) > config_.max_tokens;
      if (is_full || (config_.max_batch_size && size > *config_.max_batch_size)) break;  // and stays so
      if (size >= config_.min_batch_size) best = end;
    }
    return best;
  }

  const std::vector<int64_t>& lengths_;
  const config::DynamicBatching& config_;
  const size_t num_together_;
};

}  // namespace

DynamicBatches::DynamicBatches(std::vector<int64_t> lengths, const config::DynamicBatching& config, int64_t train_batch,
                               bool same_size, uint64_t seed)
    : lengths_(std::move(lengths)),
      train_batch_(train_batch),
      same_size_(same_size),
      scaling_(config.lr_scaling_method) {
  const size_t num_together = same_size ? static_cast<size_t>(train_batch) : 1;
  groups_ = Packer(lengths_, config, num_together).pack(pick(lengths_, config, seed));
  const size_t num_packed = groups_.size(), per_step = static_cast<size_t>(train_batch);
  groups_.resize(num_packed - num_packed % per_step);
  if (groups_.empty()) {
    const auto [least, most] = std::minmax_element(lengths_.begin(), lengths_.end());
    throw UserError(
        ExitCode::kBadInput,
        fmt::format("dynamic batching: {} samples of {} to {} tokens fill {} groups of at most {} tokens, and a step "
                    "needs {} (train_batch_size): change max_tokens, min_batch_size or the batch size",
                    lengths_.size(), *least, *most, num_packed, config.max_tokens, train_batch));
  }
  int64_t num_dealt = 0;
  for (size_t first = 0; first < groups_.size(); first += per_step) {
    begins_.push_back(num_dealt);
    for (size_t i = first; i < first + per_step; ++i) num_dealt += std::ssize(groups_[i]);
    sizes_.push_back(num_dealt - begins_.back());
  }
  num_left_out_ = std::ssize(lengths_) - num_dealt;
}

MicroBatchPlan DynamicBatches::plan(int64_t step, int64_t accumulation_step, const BatchShape& shape, int rank) const {
  const size_t index = index_of(step);
  const int64_t first = static_cast<int64_t>(index) * train_batch_;
  MicroBatchPlan out;
  for (int64_t i = 0; i < shape.micro_batch; ++i) {
    const int64_t group = first + (accumulation_step * shape.micro_batch + i) * shape.num_ranks + rank;
    const auto& samples = groups_[static_cast<size_t>(group)];
    out.samples.insert(out.samples.end(), samples.begin(), samples.end());
  }
  out.num_samples = std::ssize(out.samples);
  out.sequence_length = longest_of(out.samples);
  for (int64_t group = first; same_size_ && group < first + train_batch_; ++group) {
    out.sequence_length = std::max(out.sequence_length, longest_of(groups_[static_cast<size_t>(group)]));
  }
  const int64_t epoch = (step - 1) / num_steps();
  out.first = {epoch, begins_[index]};
  const bool is_last = index + 1 == sizes_.size();
  out.after = is_last ? DataPosition{epoch + 1, 0} : DataPosition{epoch, begins_[index + 1]};
  return out;
}

int64_t DynamicBatches::longest_of(std::span<const int64_t> samples) const {
  int64_t longest = 0;
  for (const int64_t sample : samples) longest = std::max(longest, lengths_[static_cast<size_t>(sample)]);
  return longest;
}

double DynamicBatches::rate_scale(int64_t step) const {
  const double factor = static_cast<double>(num_samples(step)) / static_cast<double>(train_batch_);
  switch (scaling_) {
    case config::RateScaling::kLinear:
      return factor;
    case config::RateScaling::kSqrt:
      return std::sqrt(factor);
    case config::RateScaling::kNone:
      break;
  }
  return 1;
}

int64_t DynamicBatches::max_positions(const BatchShape& shape) const {
  int64_t most = 0;
  for (int64_t step = 1; step <= num_steps(); ++step) {
    for (int64_t accumulation_step = 0; accumulation_step < shape.accumulation; ++accumulation_step) {
      for (int rank = 0; rank < shape.num_ranks; ++rank) {
        const auto each = plan(step, accumulation_step, shape, rank);
        most = std::max(most, each.num_samples * each.sequence_length);
      }
    }
  }
  return most;
}

std::string DynamicBatches::summary() const {
  const auto [least, most] = std::minmax_element(sizes_.begin(), sizes_.end());
  return fmt::format("dynamic batching: {} steps a pass over the data, of {} groups and {} to {} samples each{}",
                     sizes_.size(), train_batch_, *least, *most,
                     num_left_out_ > 0 ? fmt::format("; {} of {} samples fill no group and are left out", num_left_out_,
                                                     lengths_.size())
                                       : "");
}

std::string DynamicBatches::describe(int64_t step) const {
  const auto first = static_cast<std::ptrdiff_t>(index_of(step)) * train_batch_;
  std::vector<std::string> each;
  for (auto group = groups_.begin() + first; group != groups_.begin() + first + train_batch_; ++group) {
    int64_t tokens = 0;
    for (const int64_t sample : *group) tokens += lengths_[static_cast<size_t>(sample)];
    each.push_back(fmt::format("{} x {}", group->size(), tokens));
  }
  return fmt::format("dynamic batching: step {} has {} samples; samples x tokens of its groups: {}", step,
                     num_samples(step), fmt::join(each, ", "));
}

std::vector<int64_t> read_sample_lengths(const std::string& metrics_path, int64_t num_samples, int64_t max_length) {
  const std::string path = metrics_path + "/seqlen/seqlen_sample_to_metric";
  auto lengths = read_index_rows(path).values;
  if (std::ssize(lengths) != num_samples) {
    throw UserError(ExitCode::kBadInput,
                    fmt::format("dynamic batching: '{}' has the lengths of {} samples, and the training data has {}: "
                                "analyze this data again (tools/analyze_data)",
                                path, lengths.size(), num_samples));
  }
  const auto wrong =
      std::find_if(lengths.begin(), lengths.end(), [&](int64_t length) { return length < 1 || length > max_length; });
  if (wrong == lengths.end()) return lengths;
  throw UserError(ExitCode::kBadInput,
                  fmt::format("dynamic batching: '{}' has length {} of sample {}, and samples have 1 to {} tokens: "
                              "analyze this data again (tools/analyze_data)",
                              path, *wrong, wrong - lengths.begin(), max_length));
}

}  // namespace dslaunch::runtime
