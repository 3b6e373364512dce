#include "runtime/engine/inference/beam_search.hpp"

#include <ATen/ATen.h>

#include <algorithm>
#include <cmath>
#include <utility>

namespace dslaunch::runtime::engine::inference {
namespace {

constexpr float kImpossible = -1e9F;

float penalized(float score, int64_t length, double penalty) {
  return score / static_cast<float>(std::pow(static_cast<double>(length), penalty));
}

}  // namespace

BeamSearch::BeamSearch(BeamOptions options) : options_(std::move(options)), running_(1), scores_(1, 0.0F) {}

// More than there are beams, so that enough of them are left when the best ones end.
std::vector<BeamSearch::Candidate> BeamSearch::best_candidates(const at::Tensor& log_probs) const {
  const auto num_ends = static_cast<int64_t>(options_.ends.size());
  const int64_t classes = log_probs.size(1);
  const at::Tensor scores = (log_probs + at::tensor(scores_).unsqueeze(1)).reshape({-1});
  const int64_t kept = std::min(std::max<int64_t>(2, 1 + num_ends) * options_.num_beams, scores.numel());
  const auto [values, indices] = scores.topk(kept);
  std::vector<Candidate> out;
  for (int64_t i = 0; i < kept; ++i) {
    const int64_t index = indices[i].item<int64_t>();
    const int64_t token = index % classes;
    const bool ends = options_.ends.count(token) > 0 || length_ + 1 >= options_.num_tokens;
    out.push_back({static_cast<int>(index / classes), token, values[i].item<float>(), ends});
  }
  return out;
}

const std::vector<BeamSearch::Continuation>& BeamSearch::step(const at::Tensor& log_probs) {
  const auto candidates = best_candidates(log_probs);
  const bool all_end = std::all_of(candidates.begin(), candidates.end(), [](const auto& one) { return one.ends; });
  take_finished(candidates);
  auto order = candidates;
  for (auto& candidate : order) candidate.score += candidate.ends ? kImpossible : 0;
  std::stable_sort(order.begin(), order.end(), [](const auto& a, const auto& b) { return a.score > b.score; });
  order.resize(std::min(order.size(), static_cast<size_t>(options_.num_beams)));
  const auto before = std::exchange(running_, {});
  scores_.clear();
  continuations_.clear();
  for (const auto& candidate : order) {
    continuations_.push_back({candidate.parent, candidate.token});
    running_.push_back(before[static_cast<size_t>(candidate.parent)]);
    running_.back().push_back(candidate.token);
    scores_.push_back(candidate.score);
  }
  length_ += 1;
  may_improve_ = may_improve_ && can_improve();
  const bool is_full = finished_.size() == static_cast<size_t>(options_.num_beams);
  is_done_ = !may_improve_ || (is_full && options_.early_stopping == EarlyStopping::kFirst) || all_end;
  return continuations_;
}

// Only the best candidates can end a text: the others continue.
void BeamSearch::take_finished(const std::vector<Candidate>& candidates) {
  const auto num_beams = static_cast<size_t>(options_.num_beams);
  const bool is_closed =
      !may_improve_ || (finished_.size() == num_beams && options_.early_stopping == EarlyStopping::kFirst);
  if (is_closed) return;
  for (size_t i = 0; i < candidates.size() && i < num_beams; ++i) {
    if (!candidates[i].ends) continue;
    Text text{running_[static_cast<size_t>(candidates[i].parent)],
              penalized(candidates[i].score, length_ + 1, options_.length_penalty)};
    text.tokens.push_back(candidates[i].token);
    finished_.push_back(std::move(text));
  }
  std::stable_sort(finished_.begin(), finished_.end(), [](const auto& a, const auto& b) { return a.score > b.score; });
  if (finished_.size() > num_beams) finished_.resize(num_beams);
}

bool BeamSearch::can_improve() const {
  const bool by_longest = options_.early_stopping == EarlyStopping::kNever && options_.length_penalty > 0;
  const float best = penalized(scores_.front(), by_longest ? options_.num_tokens : length_, options_.length_penalty);
  const bool is_full = finished_.size() == static_cast<size_t>(options_.num_beams);
  return best > (is_full ? finished_.back().score : kImpossible);
}

}  // namespace dslaunch::runtime::engine::inference
