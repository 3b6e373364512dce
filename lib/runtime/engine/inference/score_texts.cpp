#include "runtime/engine/inference/score_texts.hpp"

#include <ATen/ATen.h>

#include <algorithm>
#include <cmath>
#include <optional>
#include <string_view>

#include "base/error.hpp"
#include "base/format.hpp"
#include "runtime/data/array_selection.hpp"
#include "runtime/data/batch_assembly.hpp"
#include "runtime/data/sample_source.hpp"
#include "runtime/engine/inference/generation_config.hpp"
#include "runtime/engine/inference/text_model.hpp"
#include "runtime/engine/inference/token_scores.hpp"

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

std::optional<size_t> array_named(const SampleSource& source, std::string_view name) {
  const auto& arrays = source.arrays();
  const auto found = std::find_if(arrays.begin(), arrays.end(), [&](const auto& array) { return array.name == name; });
  return found == arrays.end() ? std::nullopt : std::optional<size_t>(found - arrays.begin());
}

struct Arrays {
  size_t ids = 0, labels = 0;
  std::optional<size_t> mask, decoder_ids;  // for a model with an encoder

  std::vector<size_t> all() const {
    std::vector<size_t> out{ids, labels};
    for (const auto& more : {mask, decoder_ids}) {
      if (more) out.push_back(*more);
    }
    return out;
  }
};

Arrays arrays_of(const SampleSource& source, const std::string& path, bool has_encoder) {
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
  if (!ids || !labels) {
    throw UserError(ExitCode::kBadInput,
                    fmt::format("--score needs an array of ids and one of labels, and '{}' has no {}", path,
                                ids ? "labels" : "lists of ids"));
  }
  if (!has_encoder) return {*ids, *labels, {}, {}};
  return {*ids, *labels, array_named(source, "attention_mask"), array_named(source, "decoder_input_ids")};
}

// The labels of samples as a model with an encoder is trained on them.
class Answers {
 public:
  Answers(InferModel& model, const SampleSource& source, const Arrays& arrays) : source_(source), arrays_(arrays) {
    if (model.hugging_face()) config_ = read_generation_config(*model.hugging_face(), model.file());
    if (arrays.decoder_ids || config_.decoder_start || config_.begins_with_last_label) return;
    throw UserError(ExitCode::kBadInput,
                    "--score: the model file does not record how the model shifts its labels (decoder_start_token_id); "
                    "give the array decoder_input_ids, or take --data with --outputs, which writes forward's loss");
  }

  // What the encoder reads: masks of texts are ones, so padding is left out.
  at::Tensor encoder_ids(int64_t sample) const {
    const at::Tensor ids = row_of(source_, arrays_.ids, sample);
    if (!arrays_.mask) return ids;
    const at::Tensor counts = row_of(source_, *arrays_.mask, sample).ne(0);
    const int64_t length = counts.sum().item<int64_t>();
    if (length > 0 && counts.narrow(1, 0, length).all().item<bool>()) return ids.narrow(1, 0, length);
    throw UserError(
        ExitCode::kBadInput,
        fmt::format("--score: the attention_mask of sample {} has zeros in front of ones; padding has to be "
                    "behind the text",
                    sample));
  }

  at::Tensor decoder_ids(int64_t sample, const at::Tensor& labels) const {
    if (arrays_.decoder_ids) return row_of(source_, *arrays_.decoder_ids, sample);
    at::Tensor out = labels.roll(1, 1);
    out.masked_fill_(out.eq(kIgnoredLabel), config_.pad);
    out.select(1, 0).fill_(config_.begins_with_last_label ? last_of(labels) : *config_.decoder_start);
    return out;
  }

 private:
  int64_t last_of(const at::Tensor& labels) const {
    const at::Tensor counting = labels.masked_select(labels.ne(kIgnoredLabel));
    return counting.numel() == 0 ? config_.pad : counting[-1].item<int64_t>();
  }

  const SampleSource& source_;
  const Arrays arrays_;
  GenerationConfig config_;
};

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
  const bool shows_text = std::any_of(texts.begin(), texts.end(), [](const Prompt& one) { return !one.has_ids; });
  const Vocabulary vocabulary = open_vocabulary(model, tokens, shows_text);
  std::vector<TextScore> out;
  for (size_t i = 0; i < texts.size(); ++i) {
    const auto ids = encode_prompt(model, vocabulary, texts[i]);
    if (ids.size() < 2) {
      throw UserError(ExitCode::kBadInput,
                      fmt::format("{} has one token, and a score needs two: the first is given", texts[i].where));
    }
    TextScore& score = out.emplace_back();
    try {
      for (const TokenScore& token : score_tokens(tokens, ids, 0)) {
        score.log_probability += static_cast<double>(token.log_probability);
        score.num_tokens += 1;
      }
    } catch (const TooManyTokens&) {
      throw UserError(ExitCode::kBadInput, fmt::format("{} has {} tokens, and the model takes at most {}: cut it into "
                                                       "pieces",
                                                       texts[i].where, ids.size(), *tokens.max_tokens()));
    }
  }
  return out;
}

TextScore score_data(InferModel& model, at::Device device, const std::string& path) {
  TokenModel tokens(model.model(), device);
  config::Data data;
  data.eval = {path};
  const auto source = open_eval_samples(data);
  const Arrays arrays = arrays_of(*source, path, tokens.has_encoder());
  source->prepare(arrays.all());
  std::optional<Answers> answers;
  if (tokens.has_encoder()) answers.emplace(model, *source, arrays);
  const bool shifts = model.model().facts.labels == LabelConvention::kSame && !answers;
  TextScore score;
  for (int64_t i = 0; i < source->num_samples(); ++i) {
    const at::Tensor labels = row_of(*source, arrays.labels, i);
    const int64_t length = labels.size(1) - (shifts ? 1 : 0);
    const at::Tensor logits = answers ? tokens.logits(answers->decoder_ids(i, labels), answers->encoder_ids(i))
                                      : tokens.logits(row_of(*source, arrays.ids, i));
    add(score, logits.narrow(1, 0, length), labels.narrow(1, shifts ? 1 : 0, length));
  }
  return score;
}

}  // namespace dslaunch::runtime::engine::inference
