// Chooses the next token from logits: the likeliest, or one that is drawn. Pure: the number that decides a draw is an
// argument, so that a text depends on its prompt and the seed alone.
#pragma once
#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

namespace dslaunch::runtime::engine::inference {

struct Sampling {
  double temperature = 0.8;  // 0: always the likeliest
  int64_t top_k = 0;         // only the k likeliest; 0: all
  double top_p = 1;          // only the likeliest that together have this probability
  double min_p = 0;          // only those with at least this share of the likeliest's probability
  // Divides positive logits of tokens that the text has, and multiplies negative ones.
  double repetition_penalty = 1;
};

// In [0, 1), a function of its arguments.
double uniform_number(uint64_t seed, uint64_t request, int64_t position);

// `logits`: fp32 [classes] on the host, changed. `history`: the tokens so far.
void penalize_repetition(const at::Tensor& logits, const std::vector<int64_t>& history, double penalty);

// The probabilities with which tokens are drawn, after all limits, in the order of temperature, top-k, top-p, min-p;
// float64 [classes]. A temperature above 0.
at::Tensor probabilities(const at::Tensor& logits, const Sampling& sampling);

// `logits`: fp32 [classes] on the host. `uniform`: in [0, 1). Throws UserError(65) if no logit is finite, or one is
// not a number.
int64_t choose_token(const at::Tensor& logits, const Sampling& sampling, const std::vector<int64_t>& history,
                     double uniform);

// The same for rows of texts, on any device, without waiting for it.
struct RowSampling {
  // Of each row, [rows, 1]; float64, top_k int64.
  at::Tensor temperature, top_k, top_p, min_p, repetition_penalty, uniform;
  at::Tensor seen;  // bool [rows, classes]: the tokens that a text has; with `penalizes`
  // Whether a row of them draws, limits what is drawn, penalizes repetition. What none does is left out.
  bool draws = false, limits = false, penalizes = false;

  bool has_steps_of(const RowSampling& other) const {
    return draws == other.draws && limits == other.limits && penalizes == other.penalizes;
  }
  // The values of another, in the same memory; not what has been seen.
  void take(const RowSampling& other);
};

// `logits`: fp32 [rows, classes]. Returns int64 [rows]; -1 where choose_token() would throw.
at::Tensor choose_tokens(const at::Tensor& logits, const RowSampling& sampling);
// Throws as choose_token() for such a -1.
void require_finite_choice(int64_t token);

}  // namespace dslaunch::runtime::engine::inference
