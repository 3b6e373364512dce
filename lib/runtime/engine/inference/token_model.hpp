// A model as a function from the ids of tokens to their logits: which arguments of forward take ids, which of its
// results are logits, how many tokens it takes at once. One thread.
#pragma once
#include <ATen/core/Tensor.h>

#include <cstdint>
#include <optional>

#include "base/error.hpp"
#include "runtime/model/interface/model.hpp"

namespace dslaunch::runtime::engine::inference {

class TokenModel {
 public:
  // `model`: of load_token_model(), with parameters; it must outlive this object. Throws UserError(65) if it is known
  // not to take texts.
  TokenModel(model::Model& model, at::Device device);

  bool has_encoder() const;
  // Tokens below this are rows of the model's tables, as far as its graph shows them.
  std::optional<int64_t> vocabulary() const;
  // ids and encoder_ids: int64 [batch, positions] on the host; encoder_ids of a model without an encoder: undefined.
  // [batch, positions, classes] on the device. Throws UserError(65) when the model does not take the ids (TooManyTokens
  // if it takes fewer), or returns no logits for them.
  at::Tensor logits(const at::Tensor& ids, const at::Tensor& encoder_ids = {});

  // The most tokens that forward takes at once, as far as it is known: from its graph, or from ids that it refused.
  std::optional<int64_t> max_tokens() const { return max_tokens_; }
  model::Model& model() { return model_; }
  at::Device device() const { return device_; }

 private:
  at::Tensor run(const at::Tensor& ids, const at::Tensor& encoder_ids);
  bool takes(int64_t length, const at::Tensor& encoder_ids);
  void find_max_tokens(int64_t refused, const at::Tensor& encoder_ids);

  model::Model& model_;
  const at::Device device_;
  std::optional<int64_t> max_tokens_;
};

// The model takes TokenModel::max_tokens() at once, and got more.
class TooManyTokens : public UserError {
 public:
  TooManyTokens(int64_t given, int64_t most);
};

}  // namespace dslaunch::runtime::engine::inference
