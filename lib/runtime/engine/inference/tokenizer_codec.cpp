#include <utility>

#include "runtime/engine/inference/infer_model.hpp"
#include "runtime/engine/inference/text_codec.hpp"
#include "runtime/text/tokenizer.hpp"

namespace dslaunch::runtime::engine::inference {
namespace {

class DecodedText final : public ByteStream {
 public:
  explicit DecodedText(std::unique_ptr<text::StreamDecoder> decoder) : decoder_(std::move(decoder)) {}
  std::string push(int64_t id) override { return decoder_->push(id); }
  std::string finish() override { return decoder_->finish(); }

 private:
  const std::unique_ptr<text::StreamDecoder> decoder_;
};

class TokenizerCodec final : public TextCodec {
 public:
  explicit TokenizerCodec(std::unique_ptr<text::Tokenizer> tokenizer) : tokenizer_(std::move(tokenizer)) {}

  std::vector<int64_t> encode(std::string_view text) const override {
    return tokenizer_->encode(text, /*add_special=*/true);
  }
  std::unique_ptr<ByteStream> stream() const override {
    return std::make_unique<DecodedText>(tokenizer_->stream_decoder(/*skip_special=*/true));
  }
  std::string token_text(int64_t id) const override { return tokenizer_->decode({id}, /*skip_special=*/false); }
  int64_t num_tokens() const override { return tokenizer_->vocabulary_size(); }
  std::vector<int64_t> ends() const override { return tokenizer_->special().ends; }

 private:
  const std::unique_ptr<text::Tokenizer> tokenizer_;
};

}  // namespace

std::optional<std::string> tokenizer_of(const InferModel& model) {
  const ModelSource& source = model.source();
  if (!source.tokenizer.empty()) return source.tokenizer;
  const auto& facts = model.hugging_face();
  const bool is_recorded = facts && facts->source_kind == "directory";
  const std::string from = !source.weights.empty() ? source.weights : is_recorded ? facts->source_name : std::string();
  return text::find_tokenizer_of_model(model.file(), from);
}

std::unique_ptr<TextCodec> tokenizer_codec(const InferModel& model, int64_t num_embeddings) {
  const auto path = tokenizer_of(model);
  if (!path) return nullptr;
  auto tokenizer = text::open_tokenizer(*path);
  text::require_fit(*tokenizer, num_embeddings);
  return std::make_unique<TokenizerCodec>(std::move(tokenizer));
}

}  // namespace dslaunch::runtime::engine::inference
