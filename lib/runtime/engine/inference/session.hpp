// Writes the texts of several requests side by side, a token of each at a time. One thread.
#pragma once
#include <chrono>
#include <cstdint>
#include <list>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "runtime/engine/inference/beam_search.hpp"
#include "runtime/engine/inference/decoder.hpp"
#include "runtime/engine/inference/infer_report.hpp"
#include "runtime/engine/inference/sampler.hpp"
#include "runtime/engine/inference/step_batch.hpp"
#include "runtime/engine/inference/token_scores.hpp"

namespace dslaunch::runtime::engine::inference {

struct Request {
  std::vector<int64_t> encoder_ids;  // of a model with an encoder, else empty
  std::vector<int64_t> ids;          // what the (decoder's) text begins with; at least one
  int64_t num_tokens = 200;          // the most that are added; at least 1
  Sampling sampling;
  uint64_t seed = 0;
  std::set<int64_t> ends;  // tokens that end the text, of which they are the last
  int num_beams = 1;       // more: beam search, without draws
  double length_penalty = 1;
  EarlyStopping early_stopping = EarlyStopping::kHeuristic;
  std::optional<int64_t> forced_first, forced_last;  // the first token, the last one of `num_tokens`
  // How many equal prompts were before it, as its draws see it; nothing: of those that this session has got.
  std::optional<uint64_t> repetition;
  // Without beams: each token comes with its score, and with so many of the likeliest; before temperature and limits.
  std::optional<int64_t> num_top;
};

enum class Finish : uint8_t { kNot, kEnd, kLength };

struct NewToken {
  int request = 0;
  int64_t id = 0;
  Finish finish = Finish::kNot;     // of the text, after this token
  std::optional<TokenScore> score;  // Request::num_top
};

class Session {
 public:
  static constexpr size_t kMaxTexts = 256;  // that are written at once; the others wait

  // `num_classes`: only tokens below it are chosen; 0: all. `device`: of the model; where the decoder can, texts
  // without beams are written there (step_batch.hpp).
  explicit Session(Decoder& decoder, int64_t num_classes = 0, at::Device device = at::kCPU);

  // Draws are a function of the seed, of the prompt and of the token's position: requests in another order get the same
  // texts. Requests with the same prompt get different ones (Request::repetition). Returns 0, 1, ...
  int add(Request request);
  // One token for each text that is written now, all tokens of a text that beam search has finished. Throws as
  // Decoder::append() does, TooManyTokens for a prompt. Where the cache is full, the newest text waits until another
  // one has ended, and is then read again.
  std::vector<NewToken> step();
  bool is_done() const { return active_.empty() && deferred_.empty(); }
  // Texts that have not ended.
  size_t num_active() const { return active_.size() + deferred_.size(); }
  // Ends a text, when what has been written is enough.
  void stop(int request);
  // InferReport::steps.
  std::string steps() const {
    return steps_ == nullptr || !has_stepped_ ? "off" : steps_->is_captured() ? "captured" : "on the device";
  }
  // Times and counts; not the memory.
  const InferReport& report() const { return report_; }
  // The same since the last call.
  InferReport take_report() { return std::exchange(report_, {}); }

 private:
  struct Active {
    int number = 0;
    Request request;
    uint64_t key = 0;                    // of draws
    std::vector<int64_t> written;        // of a request without beams
    std::optional<BeamSearch> beams;     // while there are any
    std::vector<int> texts;              // of the decoder: one, or one for each running beam
    std::vector<Decoder::Piece> pieces;  // to be read next
    std::chrono::steady_clock::time_point begun;
    bool has_begun = false;
  };

  static std::vector<int64_t> text_of(const Active& active);
  uint64_t key_of(const Request& request);
  std::vector<NewToken> step_or_defer();
  bool defer_newest();
  void begin(Active& active);
  std::vector<NewToken> advance(Active& active, const at::Tensor& logits, const at::Tensor& all_classes);
  std::vector<NewToken> advance_beams(Active& active, const at::Tensor& logits);
  void force_tokens(const Active& active, int64_t num_written, const at::Tensor& scores) const;
  void close(Active& active);
  std::vector<NewToken> accept(Active& active, int64_t token);
  std::vector<NewToken> append();
  bool is_stepped(const Active& active) const;
  bool can_step() const;
  bool reads_prompts_alone() const;
  std::vector<StepBatch::Row> rows_of_batch();
  void enqueue(size_t num_ahead);
  bool may_go_on();
  bool steps_hold_batch();
  std::vector<NewToken> step_on_device();
  void note_time(const std::vector<const Active*>& first, std::chrono::steady_clock::time_point started);

  Active* find(int request);

  Decoder& decoder_;
  const int64_t num_classes_;
  std::list<Active> active_;
  std::list<Active> deferred_;             // the cache was full
  std::map<uint64_t, uint64_t> num_same_;  // requests so far by prompt
  int next_ = 0;
  std::unique_ptr<StepBatch> steps_;  // null: the decoder has none
  std::vector<int> stepped_;          // requests whose newest tokens are there
  bool has_stepped_ = false;
  InferReport report_;
};

}  // namespace dslaunch::runtime::engine::inference
