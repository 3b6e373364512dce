#include "runtime/engine/inference/generate_texts.hpp"

#include <ATen/ATen.h>

#include <algorithm>
#include <optional>
#include <utility>

#include "base/error.hpp"
#include "base/format.hpp"
#include "base/log.hpp"
#include "runtime/engine/inference/step_kernels.hpp"
#include "runtime/engine/inference/text_stream.hpp"
#include "runtime/telemetry/host_memory.hpp"
#include "runtime/telemetry/memory_breakdown.hpp"
#include "runtime/telemetry/memory_rate.hpp"

namespace dslaunch::runtime::engine::inference {
namespace {

bool shows_text(const std::vector<Prompt>& prompts) {
  return std::any_of(prompts.begin(), prompts.end(),
                     [](const Prompt& prompt) { return !prompt.has_ids || !prompt.text.empty(); });
}

std::vector<std::vector<int64_t>> encode_all(const TextModel& model, const std::vector<Prompt>& prompts) {
  std::vector<std::vector<int64_t>> out;
  for (const Prompt& prompt : prompts) out.push_back(model.encode(prompt));
  return out;
}

// The texts of one call.
class Generation {
 public:
  Generation(InferModel& model, at::Device device, const GenerateOptions& options, const GenerateCallbacks& callbacks)
      : model_(model, device, options.model, shows_text(options.prompts)),
        options_(options),
        callbacks_(callbacks),
        prompt_ids_(encode_all(model_, options.prompts)),
        decoder_(model_.make_decoder()),
        session_(model_.make_session(*decoder_)) {
    if (options.profiles_steps && device.is_cuda()) step_kernels_.emplace(device);
    const auto& ignored = model_.config().ignored;
    if (!ignored.empty() && options.model.logs_notes) {
      log::warning("settings of the model's generation config that are not applied: {}", fmt::join(ignored, ", "));
    }
    if (!options.stops.empty() && !model_.vocabulary().codec) {
      throw UserError(ExitCode::kUsage,
                      "--stop needs texts, and the model's tokens are not known as text; end a text by "
                      "ids: --stop_ids");
    }
  }

  InferReport run() {
    for (size_t i = 0; i < prompt_ids_.size(); ++i) add(i);
    while (!session_.is_done() && !options_.stop_requested()) {
      try {
        for (const NewToken& token : session_.step()) take(token);
        if (step_kernels_) step_kernels_->note_step(decoder_->step_bytes());
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

  void add(size_t prompt) {
    const auto& ids = prompt_ids_[prompt];
    const auto& codec = model_.vocabulary().codec;
    Request request = model_.request_for(ids);
    request.num_tokens = num_tokens_for(prompt);
    request.sampling = options_.sampling;
    request.seed = options_.seed;
    request.ends.insert(options_.stop_ids.begin(), options_.stop_ids.end());
    request.num_beams = options_.num_beams;
    request.length_penalty = options_.length_penalty;
    request.early_stopping = options_.early_stopping;
    session_.add(std::move(request));
    Text text;
    text.written.prompt_ids = ids;
    if (codec) text.stream = std::make_unique<TextStream>(codec->stream(), options_.stops);
    texts_.push_back(std::move(text));
  }

  int64_t num_tokens_for(size_t prompt) const {
    const auto length = std::ssize(prompt_ids_[prompt]);
    const int64_t most = options_.prompts[prompt].num_tokens.value_or(options_.num_tokens);
    const int64_t left = options_.max_tokens.value_or(length + most) - length;
    if (left > 0) return std::min(left, most);
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
    } else if (const auto vocabulary = model_.tokens().vocabulary()) {
      require_token(token.id, *vocabulary, model_.vocabulary().are_bytes, "the continued text");
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
  void refuse_prompt() {
    const auto most = model_.tokens().max_tokens();
    for (size_t i = 0; most && i < prompt_ids_.size(); ++i) {
      if (std::ssize(prompt_ids_[i]) <= *most) continue;
      const std::string& context = model_.model().source().context_option;
      throw UserError(
          ExitCode::kBadInput,
          fmt::format(
              "{} has {} tokens, and the model takes at most {}: shorten it{}", options_.prompts[i].where,
              prompt_ids_[i].size(), *most,
              context.empty() ? "" : fmt::format(", or let the model see its end only ({} {})", context, *most)));
    }
  }

  InferReport finished_report() {
    InferReport report = session_.report();
    report.weight_bytes = model_.model().weight_bytes();
    report.weight_types = model_.model().weight_types();
    if (const auto* ranks = model_.model().source().tensor_ranks) {
      report.tensor_ranks = ranks->size();
      report.small_sums = ranks->small_sums();
    }
    report.cache_bytes = decoder_->peak_cache_bytes();
    if (!model_.device().is_cpu()) {
      report.peak_bytes = read_device_memory(model_.device()).peak_allocated;
    } else if (const auto memory = read_host_memory()) {
      report.peak_bytes = memory->peak;
    }
    if (options_.measures_memory_rate) report.memory_rate = measure_memory_rate(model_.device());
    report.cache = model_.cache();
    report.steps = session_.steps();
    if (step_kernels_) report.kernels = step_kernels_->text();
    return report;
  }

  TextModel model_;
  const GenerateOptions& options_;
  const GenerateCallbacks& callbacks_;
  const std::vector<std::vector<int64_t>> prompt_ids_;
  const std::unique_ptr<Decoder> decoder_;
  Session session_;
  std::vector<Text> texts_;
  std::optional<StepKernels> step_kernels_;
};

}  // namespace

InferReport generate_texts(InferModel& model, at::Device device, const GenerateOptions& options,
                           const GenerateCallbacks& callbacks) {
  return Generation(model, device, options, callbacks).run();
}

}  // namespace dslaunch::runtime::engine::inference
