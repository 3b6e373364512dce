// Texts as the ids of a model's tokens, and back. Without LibTorch. A tokenizer caches words: one thread.
#pragma once
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace dslaunch::runtime::text {

// As the files beside a tokenizer name them (special_tokens.cpp).
struct SpecialTokens {
  std::optional<int64_t> bos, pad;
  std::vector<int64_t> ends;  // each of them ends a text
};

// Tokens to text, as they come. One thread.
class StreamDecoder {
 public:
  virtual ~StreamDecoder() = default;
  // The text that this token completes: whole characters, which no later token changes. An id without a token is
  // skipped.
  virtual std::string push(int64_t id) = 0;
  // What is left; afterwards a new text begins. Bytes that are no character have become U+FFFD.
  virtual std::string finish() = 0;
};

class Tokenizer {
 public:
  virtual ~Tokenizer() = default;
  // Bytes that are not UTF-8 count as U+FFFD, as in Python's errors="replace". `add_special`: with the tokens that the
  // tokenizer puts around a text. Throws UserError(65) when a pattern of the tokenizer gives up on the text.
  virtual std::vector<int64_t> encode(std::string_view text, bool add_special) = 0;
  virtual std::unique_ptr<StreamDecoder> stream_decoder(bool skip_special) const = 0;
  // Ids are below it.
  virtual int64_t vocabulary_size() const = 0;
  virtual std::optional<int64_t> id_of(std::string_view token) const = 0;

  std::string decode(const std::vector<int64_t>& ids, bool skip_special) const;
  const SpecialTokens& special() const { return special_; }
  // The file that it was read from.
  const std::string& path() const { return path_; }

 protected:
  explicit Tokenizer(std::string path) : path_(std::move(path)) {}

 private:
  friend std::unique_ptr<Tokenizer> open_tokenizer(const std::string& path);

  const std::string path_;
  SpecialTokens special_;
};

// `path`: tokenizer.json, a SentencePiece model, or a directory with one of them. Throws UserError: 66 when there is
// none, 65 for a damaged file and for a kind that is not supported, by its name.
std::unique_ptr<Tokenizer> open_tokenizer(const std::string& path);

// The file that open_tokenizer() would read in a directory.
std::optional<std::string> find_tokenizer(const std::string& directory);
// The tokenizer's file of a model: in `source`, the directory that the model was exported from (empty: not known);
// beside the model file, in the checkpoint, or in the run directory, whichever `path` is.
std::optional<std::string> find_tokenizer_of_model(const std::string& path, const std::string& source);

// Throws UserError(65) that names both numbers when the tokenizer has ids for which a model of `num_embeddings` tokens
// has no row.
void require_fit(const Tokenizer& tokenizer, int64_t num_embeddings);

}  // namespace dslaunch::runtime::text
