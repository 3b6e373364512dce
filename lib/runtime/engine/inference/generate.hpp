// Continues a text with a byte-level language model: tokens are bytes, and the model returns logits beside its loss.
#pragma once
#include <cstdint>
#include <functional>
#include <string>

#include "runtime/model/model.hpp"

namespace dslaunch::runtime::engine::inference {

struct GenerateOptions {
  std::string prompt;  // at least one byte
  int64_t num_tokens = 200;
  double temperature = 0.8;  // 0: always the most likely byte
  uint64_t seed = 0;
  int64_t context = 0;  // maximum tokens that the model accepts at once; 0: found by trying the model
};

// Calls `on_byte` for every new byte, in order. Throws UserError(65) when the model does not return logits of at least
// 256 classes for every position.
void generate(model::Model& model, const GenerateOptions& options, const std::function<void(char)>& on_byte);

}  // namespace dslaunch::runtime::engine::inference
