// Beam search over one text, with the scores, the order of equal ones and the end of transformers' generate(). Pure.
#pragma once
#include <ATen/core/Tensor.h>

#include <cstdint>
#include <set>
#include <vector>

namespace dslaunch::runtime::engine::inference {

enum class EarlyStopping : uint8_t {
  kHeuristic,  // false: when no running beam is likely to beat the finished ones
  kFirst,      // true: as soon as there are as many finished texts as beams
  kNever,      // "never": when none can beat them
};

struct BeamOptions {
  int num_beams = 1;
  double length_penalty = 1;
  EarlyStopping early_stopping = EarlyStopping::kHeuristic;
  int64_t num_tokens = 0;  // the most that are added
  std::set<int64_t> ends;  // tokens that end a text
};

class BeamSearch {
 public:
  explicit BeamSearch(BeamOptions options);

  // The beams that run on: which one each continues, and with which token.
  struct Continuation {
    int parent = 0;
    int64_t token = 0;
  };
  // `log_probs`: fp32 [beams, classes] of the running beams, at first of the only one. Not after is_done().
  const std::vector<Continuation>& step(const at::Tensor& log_probs);
  bool is_done() const { return is_done_; }

  struct Text {
    std::vector<int64_t> tokens;
    float score = 0;
  };
  // The tokens that each running beam has added.
  const std::vector<std::vector<int64_t>>& running() const { return running_; }
  // The best first.
  const std::vector<Text>& finished() const { return finished_; }

 private:
  struct Candidate {
    int parent = 0;
    int64_t token = 0;
    float score = 0;
    bool ends = false;
  };
  std::vector<Candidate> best_candidates(const at::Tensor& log_probs) const;
  void take_finished(const std::vector<Candidate>& candidates);
  bool can_improve() const;

  const BeamOptions options_;
  int64_t length_ = 0;                         // tokens added so far
  std::vector<std::vector<int64_t>> running_;  // what each beam has added
  std::vector<float> scores_;                  // of the running beams
  std::vector<Text> finished_;
  std::vector<Continuation> continuations_;
  bool may_improve_ = true, is_done_ = false;
};

}  // namespace dslaunch::runtime::engine::inference
