#include "runtime/engine/inference/score_texts.hpp"

#include <ATen/ATen.h>

#include <algorithm>
#include <cmath>
#include <optional>

#include "base/error.hpp"
#include "base/format.hpp"
#include "runtime/data/array_selection.hpp"
#include "runtime/data/batch_assembly.hpp"
#include "runtime/data/sample_source.hpp"
#include "runtime/engine/inference/generate_texts.hpp"
#include "runtime/engine/inference/token_model.hpp"

namespace dslaunch::runtime::engine::inference {
namespace {

// Adds what the rows of `logits` say of `targets` (int64, as many); kIgnoredLabel does not count.
void add(TextScore& score, const at::Tensor& logits, const at::Tensor& targets) {
  const at::Tensor own = logits.reshape({-1, logits.size(-1)}).to(at::kFloat);
  const at::Tensor labels = targets.reshape({-1}).to(own.device());
  score.log_probability -=
      at::cross_entropy_loss(own, labels, {}, at::Reduction::Sum, kIgnoredLabel).to(at::kDouble).item<double>();
  score.num_tokens += (labels != kIgnoredLabel).sum().item<int64_t>();
}

at::Tensor row_of(const SampleSource& source, size_t array, int64_t sample) {
  const ArrayInfo& info = source.arrays()[array];
  at::Tensor row = at::empty(info.sample_shape, info.dtype);
  source.read(array, sample, row.mutable_data_ptr());
  return row.to(at::kLong).unsqueeze(0);
}

struct Arrays {
  size_t ids = 0, labels = 0;
};

Arrays arrays_of(const SampleSource& source, const std::string& path) {
  std::optional<size_t> ids, labels;
  for (size_t i = 0; i < source.arrays().size(); ++i) {
    const auto& [name, dtype, shape] = source.arrays()[i];
    if (!c10::isIntegralType(dtype, /*includeBool=*/false) || shape.size() != 1) continue;
    if (is_label_name(name)) {
      labels = i;
    } else if (!ids || name == "input_ids") {
      ids = i;
    }
  }
  if (ids && labels) return {*ids, *labels};
  throw UserError(ExitCode::kBadInput,
                  fmt::format("--score needs an array of ids and one of labels, and '{}' has no {}", path,
                              ids ? "labels" : "lists of ids"));
}

}  // namespace

double TextScore::loss() const {
  return num_tokens == 0 ? 0 : -log_probability / static_cast<double>(num_tokens);
}

double TextScore::perplexity() const {
  return std::exp(loss());
}

std::vector<TextScore> score_texts(InferModel& model, at::Device device, const std::vector<Prompt>& texts) {
  TokenModel tokens(model.model(), device);
  if (tokens.has_encoder()) {
    throw UserError(ExitCode::kBadInput,
                    "the model has an encoder: its answers to texts are scored from data with "
                    "labels (--score --data FILE)");
  }
  const auto encoded = encode_prompts(model, tokens, texts);
  std::vector<TextScore> out;
  for (size_t i = 0; i < texts.size(); ++i) {
    const at::Tensor ids = at::tensor(encoded.ids[i]).unsqueeze(0);
    const int64_t length = ids.size(1);
    if (length < 2) {
      throw UserError(ExitCode::kBadInput,
                      fmt::format("{} has one token, and a score needs two: the first is given", texts[i].where));
    }
    TextScore& score = out.emplace_back();
    try {
      add(score, tokens.logits(ids).narrow(1, 0, length - 1), ids.narrow(1, 1, length - 1));
    } catch (const TooManyTokens&) {
      throw UserError(ExitCode::kBadInput, fmt::format("{} has {} tokens, and the model takes at most {}: cut it into "
                                                       "pieces",
                                                       texts[i].where, length, *tokens.max_tokens()));
    }
  }
  return out;
}

TextScore score_data(InferModel& model, at::Device device, const std::string& path) {
  TokenModel tokens(model.model(), device);
  config::Data data;
  data.eval = {path};
  const auto source = open_eval_samples(data);
  const auto [ids_array, labels_array] = arrays_of(*source, path);
  source->prepare({ids_array, labels_array});
  const bool shifts = model.model().facts.labels == LabelConvention::kSame && !tokens.has_encoder();
  TextScore score;
  for (int64_t i = 0; i < source->num_samples(); ++i) {
    const at::Tensor ids = row_of(*source, ids_array, i), labels = row_of(*source, labels_array, i);
    if (tokens.has_encoder()) {
      throw UserError(ExitCode::kBadInput,
                      "--score does not know how a model with an encoder shifts its labels; "
                      "--data with --outputs writes the loss that forward returns");
    }
    const int64_t length = labels.size(1) - (shifts ? 1 : 0);
    add(score, tokens.logits(ids).narrow(1, 0, length), labels.narrow(1, shifts ? 1 : 0, length));
  }
  return score;
}

}  // namespace dslaunch::runtime::engine::inference
