// A model that writes texts: what its tokens are as text, which of them end one, and what keeps what has been read. One
// thread.
#pragma once
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "runtime/engine/inference/decoder.hpp"
#include "runtime/engine/inference/generation_config.hpp"
#include "runtime/engine/inference/infer_model.hpp"
#include "runtime/engine/inference/prompts.hpp"
#include "runtime/engine/inference/session.hpp"
#include "runtime/engine/inference/text_codec.hpp"
#include "runtime/engine/inference/token_model.hpp"

namespace dslaunch::runtime::engine::inference {

struct TextModelOptions {
  int64_t context = 0;         // how many of a text's last tokens the model sees; 0: as many as it takes
  bool uses_cache = true;      // of keys and values, where the model has them; not with `context`
  int64_t cache_bytes = 0;     // that it may take; 0: as many as there are
  bool steps_on_host = false;  // for tests: texts are written in steps (step_batch.hpp) on CPUs, too
  bool logs_notes = true;      // what is not applied, and why the cache is off
};

// The tokens of a model, and what they are as text.
struct Vocabulary {
  std::unique_ptr<TextCodec> codec;  // null: the model's tokens are not known as text
  bool are_bytes = false;
  int64_t num_classes = 0;  // of the logits, which may be more than the tokens that the tables have rows for
  int64_t num_embeddings = 0;

  int64_t num_tokens() const;
};

// `shows_text`: a text is read or shown; else there is a codec only where the source names one. Throws UserError as
// tokenizer_codec().
Vocabulary open_vocabulary(const InferModel& model, TokenModel& tokens, bool shows_text);
// Throws UserError: 64 for an empty prompt, 65 for a text without a codec and for ids outside of the vocabulary.
std::vector<int64_t> encode_prompt(const InferModel& model, const Vocabulary& vocabulary, const Prompt& prompt);
// Throws UserError(65) for an id outside of the vocabulary.
void require_token(int64_t token, int64_t vocabulary, bool is_byte, const std::string& where);

class TextModel {
 public:
  // Throws UserError(65) for a model that does not predict tokens.
  TextModel(InferModel& model, at::Device device, const TextModelOptions& options, bool shows_text);

  InferModel& model() { return model_; }
  TokenModel& tokens() { return tokens_; }
  at::Device device() const { return device_; }
  const Vocabulary& vocabulary() const { return vocabulary_; }
  const GenerationConfig& config() const { return config_; }

  std::vector<int64_t> encode(const Prompt& prompt) const { return encode_prompt(model_, vocabulary_, prompt); }
  // The first call logs why the cache is off.
  std::unique_ptr<Decoder> make_decoder();
  // InferReport::cache, of the newest decoder.
  const std::string& cache() const { return cache_; }
  Session make_session(Decoder& decoder) const;
  // With the tokens that begin and end the model's texts.
  Request request_for(const std::vector<int64_t>& prompt_ids) const;

 private:
  int64_t max_cache_bytes() const;
  Result<std::unique_ptr<model::CachedForward>> make_cache();

  InferModel& model_;
  const at::Device device_;
  const TextModelOptions options_;
  TokenModel tokens_;
  const Vocabulary vocabulary_;
  GenerationConfig config_;
  std::string cache_;
};

}  // namespace dslaunch::runtime::engine::inference
