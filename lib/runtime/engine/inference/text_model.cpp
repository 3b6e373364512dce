#include "runtime/engine/inference/text_model.hpp"

#include <ATen/ATen.h>

#include <algorithm>
#include <utility>

#include "base/error.hpp"
#include "base/format.hpp"
#include "base/log.hpp"
#include "runtime/telemetry/memory_breakdown.hpp"

namespace dslaunch::runtime::engine::inference {
namespace {

std::string advice_on_tokens(const InferModel& model) {
  const auto& facts = model.hugging_face();
  const std::string& ids = model.source().ids_option;
  if (!facts || facts->source_kind == "architecture") {
    return fmt::format(
        "give ids ({}, tools/tokenize makes them), or generate in Python, with the tokenizer that made its data", ids);
  }
  return fmt::format(
      "give ids ({}), or write it with 'dslaunch consolidate --hf' and generate with transformers; its "
      "tokenizer is that of '{}'{}",
      ids, facts->source_name, facts->source_kind == "hub" ? " of the hub" : "");
}

int64_t count_classes(TokenModel& tokens) {
  const at::Tensor one = at::zeros({1, 1}, at::kLong);
  return tokens.logits(one, tokens.has_encoder() ? one : at::Tensor()).size(-1);
}

}  // namespace

void require_token(int64_t token, int64_t vocabulary, bool is_byte, const std::string& where) {
  if (token >= 0 && token < vocabulary) return;
  if (!is_byte) {
    throw UserError(ExitCode::kBadInput, fmt::format("{} has the id {}, and the model's vocabulary has {} tokens",
                                                     where, token, vocabulary));
  }
  throw UserError(ExitCode::kBadInput,
                  fmt::format("the text has the byte {}{}, and the model's vocabulary has {} tokens: 'dslaunch infer' "
                              "continues texts byte by byte",
                              token, token > ' ' && token < 127 ? fmt::format(" ('{}')", static_cast<char>(token)) : "",
                              vocabulary));
}

int64_t Vocabulary::num_tokens() const {
  return are_bytes ? std::min(num_embeddings, codec->num_tokens()) : num_embeddings;
}

Vocabulary open_vocabulary(const InferModel& model, TokenModel& tokens, bool shows_text) {
  Vocabulary out;
  const int64_t classes = out.num_classes = count_classes(tokens);
  out.num_embeddings = std::min(tokens.vocabulary().value_or(classes), classes);
  const bool is_named = !model.source().tokenizer.empty();
  const bool may_be_bytes = classes <= kMaxByteClasses;
  if (is_named || (shows_text && (!may_be_bytes || model.hugging_face()))) {
    out.codec = tokenizer_codec(model, out.num_embeddings);
  }
  out.are_bytes = shows_text && !out.codec && may_be_bytes;
  if (out.are_bytes) out.codec = byte_codec();
  return out;
}

std::vector<int64_t> encode_prompt(const InferModel& model, const Vocabulary& vocabulary, const Prompt& prompt) {
  if (!prompt.has_ids && !vocabulary.codec) {
    throw UserError(ExitCode::kBadInput,
                    fmt::format("the model's vocabulary has {} tokens, so they are not bytes, and no tokenizer lies "
                                "beside it; name its tokenizer ({}), {}",
                                vocabulary.num_classes, model.source().tokenizer_option, advice_on_tokens(model)));
  }
  std::vector<int64_t> ids = prompt.has_ids ? prompt.ids : vocabulary.codec->encode(prompt.text);
  if (ids.empty()) throw UserError(ExitCode::kUsage, prompt.where + " is empty");
  for (const int64_t id : ids) {
    require_token(id, vocabulary.num_tokens(), vocabulary.are_bytes && !prompt.has_ids, prompt.where);
  }
  return ids;
}

TextModel::TextModel(InferModel& model, at::Device device, const TextModelOptions& options, bool shows_text)
    : model_(model),
      device_(device),
      options_(options),
      tokens_(model.model(), device),
      vocabulary_(open_vocabulary(model, tokens_, shows_text)) {
  if (model.hugging_face()) config_ = read_generation_config(*model.hugging_face(), model.file());
  if (config_.ends.empty() && vocabulary_.codec) {
    for (const int64_t end : vocabulary_.codec->ends()) config_.ends.insert(end);
  }
}

// Without --cache_bytes: most of what the model leaves free on a GPU, where more would end all texts, not the newest.
int64_t TextModel::max_cache_bytes() const {
  if (options_.cache_bytes > 0) return options_.cache_bytes;
  const auto capacity = read_device_capacity(device_);
  if (!capacity) return 0;
  return std::max<int64_t>(0, *capacity - read_device_memory(device_).allocated) / 10 * 9;
}

Result<std::unique_ptr<model::CachedForward>> TextModel::make_cache() {
  const auto& cut = model_.model().facts.tokens;
  if (cut && !cut->ok()) return Failure{cut->error()};
  return model_.model().runnable->make_cached_forward({.max_bytes = max_cache_bytes(),
                                                       .max_positions = tokens_.max_tokens().value_or(0),
                                                       .steps_on_host = options_.steps_on_host},
                                                      tokens_.vocabulary().value_or(vocabulary_.num_classes));
}

std::unique_ptr<Decoder> TextModel::make_decoder() {
  const bool is_first = cache_.empty();
  const auto recomputing = [this](std::string why) {
    cache_ = "off: " + std::move(why);
    return std::make_unique<RecomputingDecoder>(tokens_, options_.context);
  };
  if (!options_.uses_cache) return recomputing("--no_cache");
  if (options_.context > 0) return recomputing("--context");
  auto cache = make_cache();
  if (cache.ok()) {
    cache_ = "on";
    return std::make_unique<CachedDecoder>(tokens_, *std::move(cache));
  }
  if (options_.logs_notes && is_first) {
    log::info("no cache of keys and values: {}; each token computes its whole text", cache.error());
  }
  return recomputing(cache.error());
}

Session TextModel::make_session(Decoder& decoder) const {
  return Session(decoder, vocabulary_.are_bytes ? vocabulary_.codec->num_tokens() : 0, device_);
}

Request TextModel::request_for(const std::vector<int64_t>& prompt_ids) const {
  Request request{.ends = config_.ends, .forced_first = config_.forced_first, .forced_last = config_.forced_last};
  (tokens_.has_encoder() ? request.encoder_ids : request.ids) = prompt_ids;
  if (tokens_.has_encoder()) request.ids = {config_.decoder_start.value_or(0)};
  return request;
}

}  // namespace dslaunch::runtime::engine::inference
