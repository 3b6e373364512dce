// A model of tokens that reads each token once: what later tokens need of earlier ones is kept. On the thread that runs
// the model.
#pragma once
#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <vector>

#include "base/error.hpp"
#include "base/result.hpp"

namespace dslaunch::runtime::model {

struct CacheOptions {
  int64_t max_bytes = 0;       // 0: as much as there is
  int64_t max_positions = 0;   // that a text may have; 0: not known
  bool steps_on_host = false;  // for tests: steps on CPUs too
};

// CacheOptions::max_bytes does not take more.
class CacheIsFull : public UserError {
 public:
  using UserError::UserError;
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
  // UserError(65) if the model does not take as many tokens, CacheIsFull(65); the texts are then as before.
  virtual at::Tensor append(const std::vector<Piece>& pieces) = 0;
  // At most so far.
  virtual int64_t peak_bytes() const = 0;
  // What a pass over one new token of each open text reads: its weights, but for tables whose rows it looks up, and the
  // keys and values of these texts, also those that a window hides. 0: not known, as with experts.
  virtual int64_t step_bytes() const { return 0; }

  // Steps: passes over one new token of each of several texts, which the host need not know. A step only enqueues work
  // on the device, so that it can be captured, and replayed for later tokens of texts of the same number.
  //
  // Whether it can be done; else why not, as a clause.
  virtual Result<> can_step() const { return Failure{"this model has no steps"}; }
  // Makes room for another token of each text, which the text then has. Returns the length of the longest in pages.
  // Throws as append(), and what forward throws for more positions than it has; the texts are then as before.
  virtual int64_t extend([[maybe_unused]] const std::vector<int>& texts) { return 0; }
  // Changes when what a captured step has read has moved, so that the step has to be captured again.
  virtual int64_t layout() const { return 0; }
  // The pages of a text in `row`, int32 on the host; those behind them are not read.
  virtual void write_pages([[maybe_unused]] int text, [[maybe_unused]] const at::Tensor& row) const {}
  // After extend().
  struct Step {
    at::Tensor ids, positions;  // int64 [texts]
    at::Tensor page_table;      // int32 [texts, pages]
  };
  // Of a model that tensor ranks share: waits for a point in the work of steps, and throws what ends the ranks
  // meanwhile. False: it has not waited.
  virtual bool wait_until([[maybe_unused]] const std::function<bool()>& is_reached) { return false; }
  // The logits behind each token: [texts, classes].
  virtual at::Tensor step([[maybe_unused]] const Step& step) { return {}; }
};

}  // namespace dslaunch::runtime::model
