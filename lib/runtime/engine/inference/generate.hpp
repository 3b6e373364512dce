// Continues a text with a byte-level language model: tokens are bytes, and the model returns logits beside its loss.
#pragma once
#include <cstdint>
#include <functional>
#include <string>

#include "runtime/model/interface/model.hpp"

namespace dslaunch::runtime::engine::inference {

struct GenerateOptions {
  std::string prompt;  // at least one byte
  int64_t num_tokens = 200;
  double temperature = 0.8;  // 0: always the most likely byte
  uint64_t seed = 0;
  int64_t context = 0;    // maximum tokens that the model accepts at once; 0: found by trying the model
  std::string tokenizer;  // where the model's tokenizer is, for messages; empty: not known
};

// The most classes of a model of bytes: 256, special tokens, and padding to a multiple of 64.
inline constexpr int64_t kMaxByteClasses = 320;

// Calls `on_byte` for every new byte, in order. Throws UserError(65) when the model does not return logits of 256 to
// kMaxByteClasses classes for every position.
void generate(model::Model& model, const GenerateOptions& options, const std::function<void(char)>& on_byte);

}  // namespace dslaunch::runtime::engine::inference
