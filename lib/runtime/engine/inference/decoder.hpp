// The texts that are being written: what has been read of each of them, and the logits behind its last token. One
// thread.
#pragma once
#include <ATen/core/Tensor.h>

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <vector>

#include "runtime/engine/inference/token_model.hpp"
#include "runtime/model/interface/cached_forward.hpp"

namespace dslaunch::runtime::engine::inference {

class Decoder {
 public:
  virtual ~Decoder() = default;

  // A text without tokens. `encoder_ids`: of a model with an encoder, else empty.
  virtual int open(const std::vector<int64_t>& encoder_ids) = 0;
  // Another text with the same tokens.
  virtual int fork(int text) = 0;
  virtual void close(int text) = 0;

  using Piece = model::CachedForward::Piece;
  // Adds tokens to texts, each of which is in one piece. Returns the logits behind each piece: fp32 [pieces, classes]
  // on the host. Throws UserError(65) as TokenModel::logits() does, TooManyTokens only for the first piece of a text.
  virtual at::Tensor append(const std::vector<Piece>& pieces) = 0;

  // Bytes of what is kept of texts beside their ids: now at most.
  virtual int64_t peak_cache_bytes() const { return 0; }
  // CachedForward::step_bytes().
  virtual int64_t step_bytes() const { return 0; }

  // What takes steps on the device (CachedForward::step()); null: nothing does.
  virtual model::CachedForward* steps() { return nullptr; }
  // A text as steps see it; nothing: it is not there, or would get longer than the model takes.
  struct SteppedText {
    int text = 0;
    int64_t length = 0;  // tokens that have been read
  };
  virtual std::optional<SteppedText> stepped([[maybe_unused]] int text) const { return std::nullopt; }
  // A step has read this token.
  virtual void note_read([[maybe_unused]] int text, [[maybe_unused]] int64_t id) {}
};

// Computes the whole text again for each token; texts of the same length at once.
class RecomputingDecoder final : public Decoder {
 public:
  // `context`: how many of a text's last tokens the model sees; 0: all, and of a text that has become longer than the
  // model takes, as many as it takes.
  RecomputingDecoder(TokenModel& model, int64_t context) : model_(model), context_(context) {}

  int open(const std::vector<int64_t>& encoder_ids) override;
  int fork(int text) override;
  void close(int text) override { texts_.erase(text); }
  at::Tensor append(const std::vector<Piece>& pieces) override;
  // A text that has been read elsewhere up to these tokens.
  int open_read(const std::vector<int64_t>& encoder_ids, const std::vector<int64_t>& ids);

 private:
  struct Text {
    std::vector<int64_t> encoder_ids, ids;
    size_t num_pieces = 0;
  };
  at::Tensor last_logits(const std::vector<const Text*>& texts);
  int64_t visible(const Text& text) const;

  TokenModel& model_;
  const int64_t context_;
  std::map<int, Text> texts_;
  int next_ = 0;
};

// Reads each token once. A text that becomes longer than the model takes continues in a RecomputingDecoder, whose view
// of it moves on with every token.
class CachedDecoder final : public Decoder {
 public:
  CachedDecoder(TokenModel& model, std::unique_ptr<model::CachedForward> cache);

  int open(const std::vector<int64_t>& encoder_ids) override;
  int fork(int text) override;
  void close(int text) override;
  at::Tensor append(const std::vector<Piece>& pieces) override;
  int64_t peak_cache_bytes() const override { return cache_->peak_bytes(); }
  int64_t step_bytes() const override { return cache_->step_bytes(); }
  model::CachedForward* steps() override { return cache_->can_step().ok() ? cache_.get() : nullptr; }
  std::optional<SteppedText> stepped(int text) const override;
  void note_read(int text, int64_t id) override { texts_.at(text).ids.push_back(id); }

 private:
  struct Text {
    std::vector<int64_t> encoder_ids, ids;
    int cached = -1, recomputed = -1;  // its number there; -1: it is not there
  };
  at::Tensor append_once(const std::vector<Piece>& pieces);
  at::Tensor append_cached(const std::vector<Piece>& pieces);
  bool finds_limit(const std::vector<Piece>& pieces);
  void move_to_recomputing(Text& text);

  TokenModel& model_;
  const std::unique_ptr<model::CachedForward> cache_;
  RecomputingDecoder recomputing_;
  std::map<int, Text> texts_;
  int next_ = 0;
};

}  // namespace dslaunch::runtime::engine::inference
