// How likely a model finds each token of a text.
#pragma once
#include <ATen/core/Tensor.h>

#include <cstdint>
#include <utility>
#include <vector>

#include "runtime/engine/inference/token_model.hpp"

namespace dslaunch::runtime::engine::inference {

struct TokenScore {
  int64_t id = 0;
  float log_probability = 0;                   // natural logarithm, of all classes of the model
  std::vector<std::pair<int64_t, float>> top;  // the likeliest tokens, the likeliest first
};

// Of token ids[i] by row i of `logits`, [ids, classes] on any device. `num_top`: how many of the likeliest to name.
std::vector<TokenScore> score_rows(const at::Tensor& logits, const std::vector<int64_t>& ids, int64_t num_top);

// Of each token after the first. Throws as TokenModel::logits().
std::vector<TokenScore> score_tokens(TokenModel& model, const std::vector<int64_t>& ids, int64_t num_top);

// The same of several texts in one pass. Those of different lengths are padded behind their ends: for models whose
// tokens see earlier ones only.
struct ScoredIds {
  const std::vector<int64_t>& ids;
  int64_t num_top = 0;
};
std::vector<std::vector<TokenScore>> score_tokens(TokenModel& model, const std::vector<ScoredIds>& texts);

}  // namespace dslaunch::runtime::engine::inference
