// Texts as the ids of a model's tokens, and back. One thread.
#pragma once
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace dslaunch::runtime::engine::inference {

// Tokens to bytes, as they come.
class ByteStream {
 public:
  virtual ~ByteStream() = default;
  // What this token completes; it may end within a character.
  virtual std::string push(int64_t id) = 0;
  // What is left.
  virtual std::string finish() { return {}; }
};

class TextCodec {
 public:
  virtual ~TextCodec() = default;
  virtual std::vector<int64_t> encode(std::string_view text) const = 0;
  virtual std::unique_ptr<ByteStream> stream() const = 0;
  // Of one token by itself; it may be bytes that are no character.
  virtual std::string token_text(int64_t id) const = 0;
  // Ids are below it.
  virtual int64_t num_tokens() const = 0;
  // Tokens that end a text.
  virtual std::vector<int64_t> ends() const { return {}; }
};

// A token is a byte.
std::unique_ptr<TextCodec> byte_codec();

// The path of the tokenizer that the model's source names, or that lies where the model comes from or beside it; empty,
// null: there is none. `num_embeddings`: tokens that the model knows. Throws UserError as text::open_tokenizer and
// text::require_fit do.
class InferModel;
std::optional<std::string> tokenizer_of(const InferModel& model);
std::unique_ptr<TextCodec> tokenizer_codec(const InferModel& model, int64_t num_embeddings);

// The most classes of a model of bytes: 256, special tokens, and padding to a multiple of 64.
inline constexpr int64_t kMaxByteClasses = 320;

}  // namespace dslaunch::runtime::engine::inference
