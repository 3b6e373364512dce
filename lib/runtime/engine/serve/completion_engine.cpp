#include "runtime/engine/serve/completion_engine.hpp"

#include <ATen/ATen.h>

#include <algorithm>

#include "base/format.hpp"
#include "base/log.hpp"
#include "base/resource_error.hpp"
#include "runtime/engine/inference/token_scores.hpp"
#include "runtime/model/interface/cached_forward.hpp"

namespace dslaunch::runtime::engine::serve {
namespace {

using namespace std::chrono_literals;

constexpr size_t kMaxTexts = inference::Session::kMaxTexts;  // that are written, or begin next
constexpr int64_t kDefaultMaxLength = 32768;                 // of a model whose graph does not limit it
constexpr int64_t kMaxScoredTokens = 8192;  // of prompts that are scored in one pass, unless one alone is longer
constexpr int64_t kMaxLogits = 1 << 28;     // of such a pass
constexpr auto kPollInterval = 50ms;        // without requests, for the request to stop

std::string first_line(const std::string& text) {
  return text.substr(0, text.find('\n'));
}

}  // namespace

CompletionEngine::CompletionEngine(inference::TextModel& model, CompletionQueue& queue, ServerMetrics& metrics,
                                   EngineOptions options)
    : model_(model), queue_(queue), metrics_(metrics), options_(std::move(options)) {
  reset_session();
}

void CompletionEngine::reset_session() {
  session_.reset();
  decoder_ = model_.make_decoder();
  session_ = std::make_unique<inference::Session>(model_.make_session(*decoder_));
}

void CompletionEngine::run(const std::function<bool()>& stop_requested, const std::function<void()>& on_drain) {
  std::optional<Deadline> end;
  while (!end || !is_idle() || queue_.num_waiting() > 0) {
    if (!end && stop_requested()) {
      end = Deadline::after(options_.drain_timeout);
      queue_.close();
      on_drain();
    }
    if (end && end->passed()) return fail_all(ApiError(503, "the server ends, and this request took too long"));
    drop_gone();
    take_new(end.has_value());
    try {
      score_next();
      begin_texts();
      step();
    } catch (const model::CacheIsFull& error) {  // of the oldest text: the session has deferred all others
      fail(written_.begin()->second.completion, ApiError(400, error.what(), "prompt", "context_length_exceeded"));
    } catch (const std::exception& error) {
      recover(error);
    }
    update_metrics();
  }
}

void CompletionEngine::drop_gone() {
  for (auto completion = completions_.begin(); completion != completions_.end();) {
    const auto own = completion++;
    if (!own->is_gone()) continue;
    metrics_.count_request(499);  // as nginx counts clients that did not wait
    erase(own);
  }
}

void CompletionEngine::take_new(bool is_draining) {
  while (to_score_.size() + to_begin_.size() + session_->num_active() < kMaxTexts) {
    const auto queued = queue_.pop(is_idle() && !is_draining ? kPollInterval : 0ms);
    if (!queued) return;
    if (queued->exchange->is_gone()) continue;
    try {
      admit(*queued);
    } catch (const ApiError& error) {
      metrics_.count_request(error.status());
      queued->exchange->reply(error.reply());
    }
  }
}

void CompletionEngine::admit(const QueuedCompletion& queued) {
  completions_.emplace_back(queued, model_, options_.model_name, num_completions_++, max_length());
  const auto own = std::prev(completions_.end());
  try {
    for (size_t i = 0; i < own->num_prompts(); ++i) prove_length(own->prompt_ids(i));
  } catch (const UserError& error) {
    completions_.erase(own);
    throw ApiError(400, error.what(), "prompt", "context_length_exceeded");
  } catch (const std::exception& error) {
    return recover(error);
  }
  if (!own->scores_prompts()) return on_begun(own);
  for (size_t i = 0; i < own->num_prompts(); ++i) to_score_.push_back({own, i});
}

// A prompt that the model does not take would fail the pass in which others are written: where the most that it takes
// is not known, a longer one than any before runs alone first.
void CompletionEngine::prove_length(const std::vector<int64_t>& prompt_ids) {
  auto& tokens = model_.tokens();
  const auto length = std::ssize(prompt_ids);
  const bool is_known = tokens.max_tokens() && !tokens.has_encoder();
  if (length <= proven_length_) return;
  if (!is_known) {
    const at::Tensor ids = at::tensor(prompt_ids).unsqueeze(0);
    const at::Tensor one = at::zeros({1, 1}, at::kLong);
    tokens.has_encoder() ? tokens.logits(one, ids) : tokens.logits(ids);
  } else if (length > *tokens.max_tokens()) {
    throw inference::TooManyTokens(length, *tokens.max_tokens());
  }
  proven_length_ = length;
}

int64_t CompletionEngine::max_length() const {
  const auto known = model_.tokens().max_tokens();
  const int64_t most = known && !model_.tokens().has_encoder() ? *known : kDefaultMaxLength;
  return options_.max_length > 0 ? options_.max_length : most;
}

// The first one, and others that one pass can score beside it: of its length, or, where tokens are known to see earlier
// ones only, of about its length.
std::vector<CompletionEngine::Text> CompletionEngine::next_to_score() {
  const auto length_of = [](const Text& text) { return std::ssize(text.completion->prompt_ids(text.number)); };
  const int64_t length = length_of(to_score_.front());
  const int64_t least = model_.cache() == "on" ? length - length / 4 : length;
  const int64_t most_tokens = std::min(kMaxScoredTokens, kMaxLogits / model_.vocabulary().num_classes);
  const int64_t most = std::max<int64_t>(1, most_tokens / std::max<int64_t>(1, length));
  std::vector<Text> out;
  for (auto text = to_score_.begin(); text != to_score_.end() && std::ssize(out) < most;) {
    const bool fits = length_of(*text) <= length && length_of(*text) >= least;
    if (fits) out.push_back(*text);
    text = fits ? to_score_.erase(text) : std::next(text);
  }
  return out;
}

// One pass, so that texts are written meanwhile.
void CompletionEngine::score_next() {
  if (to_score_.empty()) return;
  const std::vector<Text> batch = next_to_score();
  std::vector<inference::ScoredIds> texts;
  for (const Text& text : batch) {
    texts.push_back({text.completion->prompt_ids(text.number), text.completion->num_top()});
  }
  std::vector<std::vector<inference::TokenScore>> scores(batch.size());
  if (texts.front().ids.size() > 1) scores = inference::score_tokens(model_.tokens(), texts);
  for (size_t i = 0; i < batch.size(); ++i) {
    if (batch[i].completion->take_scores(batch[i].number, std::move(scores[i]))) on_begun(batch[i].completion);
  }
}

void CompletionEngine::on_begun(Completions::iterator completion) {
  for (size_t i = 0; i < completion->num_choices(); ++i) to_begin_.push_back({completion, i});
}

void CompletionEngine::begin_texts() {
  while (!to_begin_.empty() && session_->num_active() < kMaxTexts) {
    const Text text = to_begin_.front();
    to_begin_.pop_front();
    text.completion->begin(text.number);
    if (text.completion->num_tokens() > 0) {
      written_[session_->add(text.completion->request_of(text.number))] = text;
    } else {
      finish_if_done(text.completion);
    }
  }
}

void CompletionEngine::step() {
  if (session_->is_done()) return;
  for (const inference::NewToken& token : session_->step()) take(token);
}

void CompletionEngine::take(const inference::NewToken& token) {
  const auto found = written_.find(token.request);
  if (found == written_.end()) return;  // of a request that has failed
  const auto [completion, choice] = found->second;
  if (completion->num_new_tokens() == 0) {
    metrics_.note_first_token(std::chrono::steady_clock::now() - completion->arrived());
  }
  completion->take(choice, token);
  if (!completion->is_finished(choice)) return;
  session_->stop(token.request);
  written_.erase(found);
  finish_if_done(completion);
}

void CompletionEngine::finish_if_done(Completions::iterator completion) {
  if (!completion->is_finished()) return;
  completion->reply();
  metrics_.count_request(200);
  metrics_.count_tokens(completion->num_prompt_tokens(), completion->num_new_tokens());
  metrics_.note_request(std::chrono::steady_clock::now() - completion->arrived());
  erase(completion);
}

void CompletionEngine::fail(Completions::iterator completion, const ApiError& error) {
  completion->fail(error);
  metrics_.count_request(error.status());
  erase(completion);
}

void CompletionEngine::erase(Completions::iterator completion) {
  const auto is_of = [completion](const Text& text) { return text.completion == completion; };
  std::erase_if(to_score_, is_of);
  std::erase_if(to_begin_, is_of);
  std::erase_if(written_, [&](const auto& entry) {
    if (!is_of(entry.second)) return false;
    session_->stop(entry.first);
    return true;
  });
  completions_.erase(completion);
}

void CompletionEngine::fail_all(const ApiError& error) {
  while (!completions_.empty()) fail(completions_.begin(), error);
  while (const auto queued = queue_.pop(0ms)) queued->exchange->reply(error.reply());
}

// A pass has failed in the middle: what the session has kept of its texts is not known to be right.
void CompletionEngine::recover(const std::exception& error) {
  const std::string what = first_line(error.what());
  std::optional<ApiError> answer;
  try {
    throw_if_resource_failed(what, "a pass of the model");
    const auto* known = dynamic_cast<const Error*>(&error);
    if (known != nullptr && known->code() == ExitCode::kUnavailable) throw Error(known->code(), known->what());
    answer.emplace(500, what);
  } catch (const OutOfMemoryError& known) {
    answer.emplace(503, known.failure());
  } catch (const UserError& known) {
    answer.emplace(500, known.what());
  } catch (const Error& known) {
    queue_.close();
    fail_all(ApiError(503, fmt::format("the server ends: {}", known.what())));
    throw;
  }
  log::error("{} requests failed: {}", completions_.size(), answer->what());
  while (!completions_.empty()) fail(completions_.begin(), *answer);
  reset_session();
}

void CompletionEngine::update_metrics() {
  metrics_.set_running(completions_.size(), session_->num_active());
  for (const auto& taken : session_->take_report().decode_steps) metrics_.note_step(taken);
}

}  // namespace dslaunch::runtime::engine::serve
