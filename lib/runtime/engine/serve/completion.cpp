#include "runtime/engine/serve/completion.hpp"

#include <algorithm>
#include <ctime>
#include <limits>
#include <map>
#include <nlohmann/json.hpp>
#include <utility>

#include "base/dump_json.hpp"
#include "base/format.hpp"
#include "base/hash.hpp"

namespace dslaunch::runtime::engine::serve {
namespace {

using inference::TokenScore;
using nlohmann::ordered_json;

constexpr int64_t kDefaultTokens = 16;  // as OpenAI's

// Another one for each request that names none.
uint64_t seed_of(const CompletionRequest& request, uint64_t number) {
  const auto now = std::chrono::system_clock::now().time_since_epoch().count();
  return request.seed.value_or(mix64(static_cast<uint64_t>(now)) ^ mix64(number));
}

// How many tokens are added to each prompt. Throws ApiError when a prompt leaves no room for them.
int64_t tokens_to_add(const std::optional<int64_t>& wanted, const std::string& where, size_t length, int64_t most) {
  const int64_t left = most - static_cast<int64_t>(length);
  if (left >= 0 && (wanted ? *wanted <= left : left > 0)) return wanted.value_or(std::min(kDefaultTokens, left));
  throw ApiError(400,
                 fmt::format("{} has {} tokens, and 'max_tokens' is {}: together they have more than {} tokens, which "
                             "are the most that this server takes",
                             where, length, wanted.value_or(kDefaultTokens), most),
                 "prompt", "context_length_exceeded");
}

}  // namespace

Completion::Completion(const QueuedCompletion& queued, inference::TextModel& model, const std::string& model_name,
                       uint64_t number, int64_t most)
    : request_(queued.request),
      exchange_(queued.exchange),
      arrived_(queued.arrived),
      model_(model),
      codec_(model.vocabulary().codec.get()),
      model_name_(model_name),
      id_(fmt::format("cmpl-{:016x}", mix64(seed_of({}, number)))),
      created_(static_cast<int64_t>(std::time(nullptr))),
      seed_(seed_of(request_, number)) {
  if (!request_.stops.empty() && codec_ == nullptr) {
    throw ApiError(400, "'stop' needs texts, and the model's tokens are not known as text; 'stop_token_ids' takes ids",
                   "stop");
  }
  if (scores_prompts() && model.tokens().has_encoder()) {
    throw ApiError(400, "'echo' with 'logprobs': the model has an encoder, which predicts no tokens of prompts",
                   "echo");
  }
  num_tokens_ = request_.max_tokens.value_or(std::numeric_limits<int64_t>::max());
  for (const auto& prompt : request_.prompts) {
    Prompt own;
    if (!prompt.has_ids) own.text = prompt.text;
    try {
      own.ids = model.encode(prompt);
    } catch (const UserError& error) {
      throw ApiError(400, error.what(), "prompt");
    }
    // Of a model with an encoder the prompt is a text of its own.
    const int64_t added =
        tokens_to_add(request_.max_tokens, prompt.where, model.tokens().has_encoder() ? 1 : own.ids.size(), most);
    num_tokens_ = std::min(num_tokens_, added);
    prompts_.push_back(std::move(own));
  }
  require_bounded_answer();
  add_choices();
}

// What the reply may have, before it is computed: a request of some MiB may ask for its prompts a hundred times.
void Completion::require_bounded_answer() const {
  constexpr int64_t kTokenBytes = 16, kScoreBytes = 48;  // of a token in JSON, of each number with its name
  constexpr int64_t kMaxBytes = int64_t{256} << 20;
  const int64_t num_scores = request_.num_logprobs ? *request_.num_logprobs + 2 : 0;
  const int64_t num_echoed = request_.echoes ? num_prompt_tokens() : 0;
  const int64_t num_texts = std::ssize(prompts_) * request_.num_choices;
  const int64_t num_tokens = num_echoed * request_.num_choices + num_texts * num_tokens_;
  if (num_tokens <= kMaxBytes / (kTokenBytes + num_scores * kScoreBytes)) return;
  throw ApiError(400, fmt::format("{} texts may have {} tokens in all, with what is asked of each of them more than an "
                                  "answer holds: ask for fewer at once",
                                  num_texts, num_tokens));
}

void Completion::add_choices() {
  std::map<std::vector<int64_t>, uint64_t> num_same;
  for (size_t prompt = 0; prompt < prompts_.size(); ++prompt) {
    for (int64_t i = 0; i < request_.num_choices; ++i) {
      Choice& choice = choices_.emplace_back();
      choice.prompt = prompt;
      choice.repetition = num_same[prompts_[prompt].ids]++;
    }
  }
}

bool Completion::take_scores(size_t prompt, std::vector<TokenScore> scores) {
  prompts_[prompt].scores = std::move(scores);
  return ++num_scored_ == prompts_.size();
}

inference::Request Completion::request_of(size_t choice) const {
  inference::Request out = model_.request_for(prompts_[choices_[choice].prompt].ids);
  out.num_tokens = num_tokens_;
  out.sampling = request_.sampling;
  out.seed = seed_;
  out.ends.insert(request_.stop_ids.begin(), request_.stop_ids.end());
  out.repetition = choices_[choice].repetition;
  out.num_top = request_.num_logprobs;
  return out;
}

void Completion::begin(size_t number) {
  Choice& choice = choices_[number];
  size_t begin = 0;
  if (request_.echoes) {
    const Prompt& prompt = prompts_[choice.prompt];
    ScoredText text(codec_, {}, 0);
    for (size_t i = 0; i < prompt.ids.size(); ++i) {
      const bool has_score = i > 0 && i - 1 < prompt.scores.size();
      text.add(prompt.ids[i], has_score ? std::optional(prompt.scores[i - 1]) : std::nullopt, /*is_text=*/true);
    }
    text.finish();
    ScoredText::Part part = text.take();
    if (prompt.text) part.text = *prompt.text;
    begin = text.num_characters();
    emit(number, std::move(part), /*is_prompt=*/true);
  }
  choice.text = std::make_unique<ScoredText>(codec_, request_.stops, begin);
  if (num_tokens_ == 0) finish(number, "length");
}

void Completion::take(size_t number, const inference::NewToken& token) {
  Choice& choice = choices_[number];
  num_new_tokens_ += 1;
  choice.text->add(token.id, token.score, token.finish != inference::Finish::kEnd);
  if (choice.text->is_stopped() || token.finish == inference::Finish::kEnd) return finish(number, "stop");
  if (token.finish == inference::Finish::kLength) return finish(number, "length");
  if (request_.streams) emit(number, choice.text->take(), /*is_prompt=*/false);
}

void Completion::finish(size_t number, const char* reason) {
  Choice& choice = choices_[number];
  choice.text->finish();
  choice.is_finished = true;
  choice.finish_reason = reason;
  num_finished_ += 1;
  emit(number, choice.text->take(), /*is_prompt=*/false);
  choice.text.reset();
}

// To the client, or to what the reply will have.
void Completion::emit(size_t number, ScoredText::Part part, bool is_prompt) {
  Choice& choice = choices_[number];
  if (part.is_empty() && choice.finish_reason == nullptr) return;
  const std::vector<int64_t> ids = is_prompt ? std::vector<int64_t>() : part.ids;
  if (!request_.streams) {
    choice.whole_text += part.text;
    choice.ids.insert(choice.ids.end(), ids.begin(), ids.end());
    if (request_.num_logprobs) choice.parts.push_back(std::move(part));
    return;
  }
  ordered_json out = document();
  ordered_json own{{"index", number}, {"text", part.text}};
  own["logprobs"] = request_.num_logprobs ? ScoredText::logprobs(part, codec_) : ordered_json();
  own["finish_reason"] = choice.finish_reason == nullptr ? ordered_json() : ordered_json(choice.finish_reason);
  own["token_ids"] = ids;
  out["choices"] = ordered_json::array({std::move(own)});
  if (request_.includes_usage) out["usage"] = nullptr;
  stream(out);
}

ordered_json Completion::document() const {
  return {{"id", id_}, {"object", "text_completion"}, {"created", created_}, {"model", model_name_}};
}

ordered_json Completion::logprobs_of(const std::vector<ScoredText::Part>& parts) const {
  ordered_json out = ScoredText::logprobs({}, codec_);
  for (const auto& part : parts) {
    const ordered_json own = ScoredText::logprobs(part, codec_);
    for (const auto& [name, values] : own.items()) {
      out[name].insert(out[name].end(), values.begin(), values.end());
    }
  }
  return out;
}

int64_t Completion::num_prompt_tokens() const {
  int64_t sum = 0;
  for (const Prompt& prompt : prompts_) sum += std::ssize(prompt.ids);
  return sum;
}

ordered_json Completion::usage() const {
  return {{"prompt_tokens", num_prompt_tokens()},
          {"completion_tokens", num_new_tokens_},
          {"total_tokens", num_prompt_tokens() + num_new_tokens_}};
}

void Completion::stream(const ordered_json& document) {
  if (!std::exchange(has_begun_stream_, true)) exchange_->begin_stream("text/event-stream");
  exchange_->write("data: " + dump_json(document) + "\n\n");
}

void Completion::reply() {
  ordered_json out = document();
  out["choices"] = ordered_json::array();
  if (request_.streams) {
    if (request_.includes_usage) {
      out["usage"] = usage();
      stream(out);
    }
    exchange_->write("data: [DONE]\n\n");
    return exchange_->end_stream();
  }
  for (size_t i = 0; i < choices_.size(); ++i) {
    const Choice& choice = choices_[i];
    out["choices"].push_back({{"index", i},
                              {"text", choice.whole_text},
                              {"logprobs", request_.num_logprobs ? logprobs_of(choice.parts) : ordered_json()},
                              {"finish_reason", choice.finish_reason},
                              {"token_ids", choice.ids}});
  }
  out["usage"] = usage();
  exchange_->reply({.body = dump_json(out) + "\n"});
}

void Completion::fail(const ApiError& error) {
  if (!has_begun_stream_) return exchange_->reply(error.reply());
  exchange_->write("data: " + error.document() + "\n\n");
  exchange_->end_stream();
}

}  // namespace dslaunch::runtime::engine::serve
