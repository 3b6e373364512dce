// How likely a model finds given texts.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "runtime/engine/inference/infer_model.hpp"
#include "runtime/engine/inference/prompts.hpp"

namespace dslaunch::runtime::engine::inference {

struct TextScore {
  double log_probability = 0;  // natural logarithm, of all tokens that were predicted
  int64_t num_tokens = 0;      // that were predicted: a text's first one is not
  // The mean cross entropy and its exponential; 0 and 1 without tokens.
  double loss() const;
  double perplexity() const;
};

// Each text with at least two tokens. Throws UserError as generate_texts() does, and 65 for a model with an encoder,
// whose answers only data can score.
std::vector<TextScore> score_texts(InferModel& model, at::Device device, const std::vector<Prompt>& texts);

// The samples of data files: an array of ids and one of labels, which the model file's record says to be the next
// tokens or the same ones; the label -100 does not count. Of a model with an encoder the ids are its, without those
// behind the ones of an array `attention_mask`, and the labels its answers; the decoder reads `decoder_input_ids`, else
// the labels as the model shifts them. One score for all. Throws UserError as open_eval_samples(), and 65 for data
// without these arrays, and for a model that does not record how it shifts labels.
TextScore score_data(InferModel& model, at::Device device, const std::string& path);

}  // namespace dslaunch::runtime::engine::inference
