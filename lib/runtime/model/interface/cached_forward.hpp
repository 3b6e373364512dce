// A model of tokens that reads each token once: what later tokens need of earlier ones is kept. On the thread that runs
// the model.
#pragma once
#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

namespace dslaunch::runtime::model {

struct CacheOptions {
  int64_t max_bytes = 0;  // 0: as much as there is
};

class CachedForward {
 public:
  virtual ~CachedForward() = default;

  // A text without tokens. `encoder_ids`: int64 [1, positions], what the encoder reads; undefined for a model without.
  virtual int open(const at::Tensor& encoder_ids) = 0;
  // Another text with the same tokens.
  virtual int fork(int text) = 0;
  virtual void close(int text) = 0;

  struct Piece {
    int text = 0;
    std::vector<int64_t> ids;  // at least one
  };
  // Adds tokens to texts, each of which is in one piece. The logits behind each piece: [pieces, classes]. Throws
  // UserError(65) if the model does not take as many tokens, or if the cache does not fit; the texts are then as
  // before.
  virtual at::Tensor append(const std::vector<Piece>& pieces) = 0;
  // At most so far.
  virtual int64_t peak_bytes() const = 0;
};

}  // namespace dslaunch::runtime::model
