#include "runtime/engine/inference/generate_texts.hpp"

#include <ATen/ATen.h>

#include <algorithm>
#include <utility>

#include "base/error.hpp"
#include "base/format.hpp"
#include "base/log.hpp"
#include "runtime/engine/inference/decoder.hpp"
#include "runtime/engine/inference/generation_config.hpp"
#include "runtime/engine/inference/text_stream.hpp"
#include "runtime/telemetry/host_memory.hpp"
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

int64_t count_classes(TokenModel& tokens) {
  const at::Tensor one = at::zeros({1, 1}, at::kLong);
  return tokens.logits(one, tokens.has_encoder() ? one : at::Tensor()).size(-1);
}

// The texts of one call.
class Generation {
 public:
  Generation(InferModel& model, at::Device device, const GenerateOptions& options, const GenerateCallbacks& callbacks)
      : model_(model),
        device_(device),
        tokens_(model.model(), device),
        options_(options),
        callbacks_(callbacks),
        encoded_(encode_prompts(model, tokens_, options.prompts)),
        decoder_(make_decoder()),
        session_(*decoder_, encoded_.are_bytes ? encoded_.codec->num_tokens() : 0, device) {
    if (model.hugging_face()) config_ = read_generation_config(*model.hugging_face(), model.file());
    if (config_.ends.empty() && encoded_.codec) {
      for (const int64_t end : encoded_.codec->ends()) config_.ends.insert(end);
    }
    if (!config_.ignored.empty() && options.logs_notes) {
      log::warning("settings of the model's generation config that are not applied: {}",
                   fmt::join(config_.ignored, ", "));
    }
    if (!options.stops.empty() && !encoded_.codec) {
      throw UserError(ExitCode::kUsage,
                      "--stop needs texts, and the model's tokens are not known as text; end a text by "
                      "ids: --stop_ids");
    }
  }

  InferReport run() {
    for (size_t i = 0; i < encoded_.ids.size(); ++i) add(i);
    while (!session_.is_done() && !options_.stop_requested()) {
      try {
        for (const NewToken& token : session_.step()) take(token);
      } catch (const TooManyTokens& error) {
        refuse_prompt();
        throw;
      }
    }
    return finished_report();
  }

 private:
  struct Text {
    std::unique_ptr<TextStream> stream;  // null: no codec
    WrittenText written;
  };

  Result<std::unique_ptr<model::CachedForward>> make_cache() {
    const auto& cut = model_.model().facts.tokens;
    if (cut && !cut->ok()) return Failure{cut->error()};
    return model_.model().runnable->make_cached_forward({.max_bytes = options_.cache_bytes,
                                                         .max_positions = tokens_.max_tokens().value_or(0),
                                                         .steps_on_host = options_.steps_on_host},
                                                        tokens_.vocabulary().value_or(encoded_.num_classes));
  }

  std::unique_ptr<Decoder> make_decoder() {
    const auto recomputing = [this](std::string why) {
      cache_ = "off: " + std::move(why);
      return std::make_unique<RecomputingDecoder>(tokens_, options_.context);
    };
    if (!options_.uses_cache) return recomputing("--no_cache");
    if (options_.context > 0) return recomputing("--context");
    auto cache = make_cache();
    if (cache.ok()) return std::make_unique<CachedDecoder>(tokens_, *std::move(cache));
    if (options_.logs_notes) {
      log::info("no cache of keys and values: {}; each token computes its whole text", cache.error());
    }
    return recomputing(cache.error());
  }

  void add(size_t prompt) {
    const auto& ids = encoded_.ids[prompt];
    Request request{.num_tokens = num_tokens_for(prompt),
                    .sampling = options_.sampling,
                    .seed = options_.seed,
                    .ends = config_.ends,
                    .num_beams = options_.num_beams,
                    .length_penalty = options_.length_penalty,
                    .early_stopping = options_.early_stopping,
                    .forced_first = config_.forced_first,
                    .forced_last = config_.forced_last};
    request.ends.insert(options_.stop_ids.begin(), options_.stop_ids.end());
    (tokens_.has_encoder() ? request.encoder_ids : request.ids) = ids;
    if (tokens_.has_encoder()) request.ids = {config_.decoder_start.value_or(0)};
    session_.add(std::move(request));
    Text text;
    text.written.prompt_ids = ids;
    if (encoded_.codec) text.stream = std::make_unique<TextStream>(encoded_.codec->stream(), options_.stops);
    texts_.push_back(std::move(text));
  }

  int64_t num_tokens_for(size_t prompt) const {
    const auto length = std::ssize(encoded_.ids[prompt]);
    const int64_t left = options_.max_tokens.value_or(length + options_.num_tokens) - length;
    if (left > 0) return std::min(left, options_.num_tokens);
    throw UserError(ExitCode::kBadInput, fmt::format("{} has {} tokens, and max_out_tokens of the config allows {} "
                                                     "together with what is added",
                                                     options_.prompts[prompt].where, length, *options_.max_tokens));
  }

  void take(const NewToken& token) {
    const auto number = static_cast<size_t>(token.request);
    Text& text = texts_[number];
    if (!text.written.finish.empty()) return;  // the rest of what beam search has found, behind a stop
    text.written.ids.push_back(token.id);
    // The token that ends a text is none of its text.
    if (text.stream && token.finish != Finish::kEnd) show(number, text.stream->add(token.id));
    if (text.stream && text.stream->is_stopped()) {
      session_.stop(token.request);
      finish(number, "stop");
    } else if (token.finish != Finish::kNot) {
      if (text.stream) show(number, text.stream->finish());
      finish(number, token.finish == Finish::kEnd ? "end" : "length");
    } else if (const auto vocabulary = tokens_.vocabulary()) {
      require_token(token.id, *vocabulary, encoded_.are_bytes, "the continued text");
    }
  }

  void show(size_t prompt, const std::string& text) {
    if (!text.empty()) callbacks_.on_text(prompt, text);
  }

  void finish(size_t prompt, const char* why) {
    Text& text = texts_[prompt];
    text.written.finish = why;
    if (text.stream) text.written.text = text.stream->text();
    callbacks_.on_finished(prompt, text.written);
  }

  // Names the first prompt that is too long.
  void refuse_prompt() const {
    const auto most = tokens_.max_tokens();
    for (size_t i = 0; most && i < encoded_.ids.size(); ++i) {
      if (std::ssize(encoded_.ids[i]) <= *most) continue;
      const std::string& context = model_.source().context_option;
      throw UserError(
          ExitCode::kBadInput,
          fmt::format(
              "{} has {} tokens, and the model takes at most {}: shorten it{}", options_.prompts[i].where,
              encoded_.ids[i].size(), *most,
              context.empty() ? "" : fmt::format(", or let the model see its end only ({} {})", context, *most)));
    }
  }

  InferReport finished_report() const {
    InferReport report = session_.report();
    report.weight_bytes = model_.weight_bytes();
    report.cache_bytes = decoder_->peak_cache_bytes();
    if (!device_.is_cpu()) {
      report.peak_bytes = read_device_memory(device_).peak_allocated;
    } else if (const auto memory = read_host_memory()) {
      report.peak_bytes = memory->peak;
    }
    report.cache = cache_;
    report.steps = session_.steps();
    return report;
  }

  InferModel& model_;
  const at::Device device_;
  TokenModel tokens_;
  const GenerateOptions& options_;
  const GenerateCallbacks& callbacks_;
  GenerationConfig config_;
  const PromptIds encoded_;
  std::string cache_ = "on";
  const std::unique_ptr<Decoder> decoder_;
  Session session_;
  std::vector<Text> texts_;
};

}  // namespace

PromptIds encode_prompts(InferModel& model, TokenModel& tokens, const std::vector<Prompt>& prompts) {
  PromptIds out;
  const int64_t classes = out.num_classes = count_classes(tokens);
  const bool has_text = std::any_of(prompts.begin(), prompts.end(), [](const Prompt& one) { return !one.has_ids; });
  const bool shows_text =
      std::any_of(prompts.begin(), prompts.end(), [](const Prompt& one) { return !one.has_ids || !one.text.empty(); });
  const int64_t embeddings = std::min(tokens.vocabulary().value_or(classes), classes);
  const bool is_named = !model.source().tokenizer.empty();
  const bool may_be_bytes = classes <= kMaxByteClasses;
  if (is_named || (shows_text && (!may_be_bytes || model.hugging_face())))
    out.codec = tokenizer_codec(model, embeddings);
  out.are_bytes = shows_text && !out.codec && may_be_bytes;
  if (out.are_bytes) out.codec = byte_codec();
  if (has_text && !out.codec) {
    throw UserError(
        ExitCode::kBadInput,
        fmt::format("the model's vocabulary has {} tokens, so they are not bytes, and there is no tokenizer "
                    "beside it; name its tokenizer ({}), {}",
                    classes, model.source().tokenizer_option, advice_on_tokens(model)));
  }
  const int64_t vocabulary = out.are_bytes ? std::min(embeddings, out.codec->num_tokens()) : embeddings;
  for (const Prompt& prompt : prompts) {
    out.ids.push_back(prompt.has_ids ? prompt.ids : out.codec->encode(prompt.text));
    if (out.ids.back().empty()) throw UserError(ExitCode::kUsage, prompt.where + " is empty");
    for (const int64_t id : out.ids.back())
      require_token(id, vocabulary, out.are_bytes && !prompt.has_ids, prompt.where);
  }
  return out;
}

InferReport generate_texts(InferModel& model, at::Device device, const GenerateOptions& options,
                           const GenerateCallbacks& callbacks) {
  return Generation(model, device, options, callbacks).run();
}

}  // namespace dslaunch::runtime::engine::inference
