#include "runtime/engine/inference/sampler.hpp"

#include <ATen/ATen.h>

#include <algorithm>
#include <cmath>
#include <set>

#include "base/error.hpp"
#include "base/hash.hpp"

namespace dslaunch::runtime::engine::inference {
namespace {

void require_finite(const at::Tensor& logits) {
  const double best = logits.max().item<double>();  // NaN, if any is
  if (std::isfinite(best)) return;
  throw UserError(ExitCode::kBadInput, "the model's logits are not finite: did its training diverge?");
}

// Leaves 0 of what is not among the likeliest tokens; `sorted` and `order`: descending.
void keep_likeliest(at::Tensor& values, const Sampling& sampling) {
  auto [sorted, order] = values.sort(/*stable=*/true, /*dim=*/0, /*descending=*/true);
  const auto* p = sorted.const_data_ptr<double>();
  const auto* token = order.const_data_ptr<int64_t>();
  const int64_t count = sorted.numel();
  int64_t kept = sampling.top_k > 0 ? std::min(sampling.top_k, count) : count;
  double total = 0;
  for (int64_t i = 0; i < kept; ++i) total += p[i];
  double before = 0;  // the probability of those that are likelier
  for (int64_t i = 0; i < kept; ++i) {
    if (before / total >= sampling.top_p && i > 0) kept = i;
    before += p[i];
  }
  while (kept > 1 && p[kept - 1] < sampling.min_p * p[0]) --kept;
  auto* value = values.mutable_data_ptr<double>();
  for (int64_t i = kept; i < count; ++i) value[token[i]] = 0;
}

}  // namespace

double uniform_number(uint64_t seed, uint64_t request, int64_t position) {
  const uint64_t bits = mix64(mix64(mix64(seed) ^ request) ^ static_cast<uint64_t>(position));
  return static_cast<double>(bits >> 11) * 0x1.0p-53;
}

void penalize_repetition(const at::Tensor& logits, const std::vector<int64_t>& history, double penalty) {
  if (penalty == 1) return;
  auto* value = logits.mutable_data_ptr<float>();
  for (const int64_t token : std::set<int64_t>(history.begin(), history.end())) {
    if (token < 0 || token >= logits.numel()) continue;
    float& logit = value[token];
    logit = logit < 0 ? logit * static_cast<float>(penalty) : logit / static_cast<float>(penalty);
  }
}

at::Tensor probabilities(const at::Tensor& logits, const Sampling& sampling) {
  const at::Tensor wide = logits.to(at::kDouble);
  // Subtracts the maximum, so that no temperature makes a logit infinite.
  at::Tensor values = at::softmax((wide - wide.max()) / sampling.temperature, 0);
  if (sampling.top_k > 0 || sampling.top_p < 1 || sampling.min_p > 0) {
    keep_likeliest(values, sampling);
    values /= values.sum();
  }
  return values;
}

int64_t choose_token(const at::Tensor& logits, const Sampling& sampling, const std::vector<int64_t>& history,
                     double uniform) {
  at::Tensor own = logits;
  if (sampling.repetition_penalty != 1) {
    own = logits.clone();
    penalize_repetition(own, history, sampling.repetition_penalty);
  }
  require_finite(own);
  if (sampling.temperature == 0) return own.argmax().item<int64_t>();
  const at::Tensor values = probabilities(own, sampling);
  const auto* p = values.const_data_ptr<double>();
  int64_t last = 0;
  double sum = 0;
  for (int64_t token = 0; token < values.numel(); ++token) {
    if (p[token] == 0) continue;
    last = token;
    sum += p[token];
    if (uniform < sum) return token;
  }
  return last;
}

}  // namespace dslaunch::runtime::engine::inference
