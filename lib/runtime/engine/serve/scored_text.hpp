// A text that is written, or a prompt, with the log-probabilities of its tokens as OpenAI's API has them. One thread.
#pragma once
#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "runtime/engine/inference/text_codec.hpp"
#include "runtime/engine/inference/text_stream.hpp"
#include "runtime/engine/inference/token_scores.hpp"

namespace dslaunch::runtime::engine::serve {

class ScoredText {
 public:
  // `codec`: null where the model's tokens are not known as text; it must outlive this object. `begin`: characters in
  // front of this text.
  ScoredText(const inference::TextCodec* codec, std::vector<std::string> stops, size_t begin);

  // `is_text`: false of the token that ends a text.
  void add(int64_t id, std::optional<inference::TokenScore> score, bool is_text);
  bool is_stopped() const { return stream_ && stream_->is_stopped(); }
  // Nothing is added any more.
  void finish();

  // What may be shown since the last call: whole characters, and the tokens that begin in them.
  struct Part {
    std::string text;
    std::vector<int64_t> ids;
    std::vector<inference::TokenScore> scores;  // of `ids`
    std::vector<bool> has_score;                // a text's first token has none
    std::vector<size_t> offsets;                // in characters
    bool is_empty() const { return text.empty() && ids.empty(); }
  };
  Part take();
  // Of all parts.
  size_t num_characters() const { return num_characters_; }

  // {"tokens", "token_logprobs", "top_logprobs", "text_offset"}.
  static nlohmann::ordered_json logprobs(const Part& part, const inference::TextCodec* codec);

 private:
  struct Token {
    std::optional<inference::TokenScore> score;
    int64_t id = 0;
    size_t begin = 0;  // bytes of the text in front of it
  };
  size_t characters_before(size_t byte);

  const inference::TextCodec* codec_;
  std::optional<inference::TextStream> stream_;
  std::vector<Token> pending_;
  std::string shown_;  // and not taken
  bool is_finished_ = false;
  size_t walked_bytes_ = 0, walked_characters_ = 0;
  size_t num_characters_ = 0;
};

}  // namespace dslaunch::runtime::engine::serve
