#include "runtime/engine/inference/token_scores.hpp"

#include <ATen/ATen.h>

#include <algorithm>

namespace dslaunch::runtime::engine::inference {
namespace {

constexpr int64_t kRows = 256;  // whose logarithms are in memory at once

}  // namespace

std::vector<TokenScore> score_rows(const at::Tensor& logits, const std::vector<int64_t>& ids, int64_t num_top) {
  const int64_t kept = std::min(num_top, logits.size(-1));
  std::vector<TokenScore> out;
  out.reserve(ids.size());
  for (int64_t begin = 0; begin < std::ssize(ids); begin += kRows) {
    const int64_t count = std::min(kRows, std::ssize(ids) - begin);
    const at::Tensor rows = at::log_softmax(logits.narrow(0, begin, count).to(at::kFloat), -1);
    const std::vector<int64_t> own_ids(ids.begin() + begin, ids.begin() + begin + count);
    const at::Tensor numbers = at::tensor(own_ids).to(rows.device());
    const at::Tensor own = rows.gather(1, numbers.unsqueeze(1)).to(at::kCPU);
    const auto [values, classes] = rows.topk(kept);
    const at::Tensor top_values = values.to(at::kCPU), top_classes = classes.to(at::kCPU);
    for (int64_t i = 0; i < count; ++i) {
      TokenScore& score = out.emplace_back();
      score.id = own_ids[static_cast<size_t>(i)];
      score.log_probability = own.const_data_ptr<float>()[i];
      for (int64_t j = i * kept; j < (i + 1) * kept; ++j) {
        score.top.emplace_back(top_classes.const_data_ptr<int64_t>()[j], top_values.const_data_ptr<float>()[j]);
      }
    }
  }
  return out;
}

std::vector<TokenScore> score_tokens(TokenModel& model, const std::vector<int64_t>& ids, int64_t num_top) {
  return score_tokens(model, {ScoredIds{ids, num_top}})[0];
}

std::vector<std::vector<TokenScore>> score_tokens(TokenModel& model, const std::vector<ScoredIds>& texts) {
  int64_t longest = 0;
  for (const ScoredIds& text : texts) longest = std::max(longest, std::ssize(text.ids));
  at::Tensor batch = at::zeros({std::ssize(texts), longest}, at::kLong);
  for (size_t i = 0; i < texts.size(); ++i) {
    const auto& ids = texts[i].ids;
    batch[static_cast<int64_t>(i)].narrow(0, 0, std::ssize(ids)).copy_(at::tensor(ids));
  }
  const at::Tensor logits = model.logits(batch);
  std::vector<std::vector<TokenScore>> out;
  for (size_t i = 0; i < texts.size(); ++i) {
    const auto& ids = texts[i].ids;
    const at::Tensor own = logits[static_cast<int64_t>(i)].narrow(0, 0, std::ssize(ids) - 1);
    out.push_back(score_rows(own, {ids.begin() + 1, ids.end()}, texts[i].num_top));
  }
  return out;
}

}  // namespace dslaunch::runtime::engine::inference
