#include "runtime/engine/inference/sampler.hpp"

#include <ATen/ATen.h>

#include <algorithm>
#include <cmath>
#include <set>
#include <tuple>

#include "base/error.hpp"
#include "base/hash.hpp"

namespace dslaunch::runtime::engine::inference {
namespace {

[[noreturn]] void refuse_logits() {
  throw UserError(ExitCode::kBadInput, "the model's logits are not finite: did its training diverge?");
}

void require_finite(const at::Tensor& logits) {
  if (!std::isfinite(logits.max().item<double>())) refuse_logits();  // NaN, if any is
}

// As logits.max(-1), whose kernel gives a whole row to one block: parts of the rows first.
std::tuple<at::Tensor, at::Tensor> max_of_rows(const at::Tensor& logits) {
  constexpr int64_t kParts = 64;
  const int64_t rows = logits.size(0), classes = logits.size(1);
  if (classes % kParts != 0 || rows > kParts) return logits.max(-1);
  const auto [best_of_parts, place] = logits.reshape({rows, kParts, classes / kParts}).max(-1);
  const auto [best, part] = best_of_parts.max(-1, /*keepdim=*/true);
  const at::Tensor likeliest = part * (classes / kParts) + place.gather(1, part);
  return {best.squeeze(1), likeliest.squeeze(1)};
}

// keep_likeliest() for rows.
at::Tensor likeliest_of_rows(const at::Tensor& values, const RowSampling& sampling) {
  const auto [sorted, order] = values.sort(/*stable=*/true, /*dim=*/-1, /*descending=*/true);
  const at::Tensor rank = at::arange(values.size(1), order.options()).unsqueeze(0);
  at::Tensor kept = (rank < sampling.top_k).logical_or(sampling.top_k <= 0);
  const at::Tensor own = sorted * kept;
  const at::Tensor before = own.cumsum(-1) - own;
  kept = kept.logical_and(before / own.sum(-1, /*keepdim=*/true) < sampling.top_p);
  kept = kept.logical_and(sorted >= sampling.min_p * sorted.narrow(1, 0, 1)).logical_or(rank == 0);
  return at::zeros_like(values).scatter(-1, order, sorted * kept);
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

void RowSampling::take(const RowSampling& other) {
  temperature.copy_(other.temperature);
  top_k.copy_(other.top_k);
  top_p.copy_(other.top_p);
  min_p.copy_(other.min_p);
  repetition_penalty.copy_(other.repetition_penalty);
}

at::Tensor choose_tokens(const at::Tensor& logits, const RowSampling& sampling) {
  at::Tensor own = logits;
  if (sampling.penalizes) {
    const at::Tensor penalty = sampling.repetition_penalty.to(at::kFloat);
    own = at::where(sampling.seen, at::where(own < 0, own * penalty, own / penalty), own);
  }
  const auto [best, likeliest] = max_of_rows(own);
  at::Tensor chosen = likeliest;
  if (sampling.draws) {
    const at::Tensor is_drawn = sampling.temperature > 0;
    const at::Tensor wide = own.to(at::kDouble) - best.to(at::kDouble).unsqueeze(1);
    at::Tensor values = at::softmax(wide / at::where(is_drawn, sampling.temperature, 1.0), -1);
    if (sampling.limits) {
      values = likeliest_of_rows(values, sampling);
      values = values / values.sum(-1, /*keepdim=*/true);
    }
    const at::Tensor numbers = at::arange(values.size(1), likeliest.options());
    const at::Tensor last = at::where(values > 0, numbers, 0).amax(-1);
    const at::Tensor drawn = at::minimum((values.cumsum(-1) <= sampling.uniform).sum(-1), last);
    chosen = at::where(is_drawn.squeeze(1), drawn, likeliest);
  }
  return at::where((best - best) == 0, chosen, -1);  // not of infinity and NaN; in fewer kernels than isfinite()
}

void require_finite_choice(int64_t token) {
  if (token < 0) refuse_logits();
}

}  // namespace dslaunch::runtime::engine::inference
