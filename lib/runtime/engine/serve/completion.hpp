// One request to /v1/completions while it is answered: its prompts, its choices, and what the client gets of them. On
// the thread that runs the model.
#pragma once
#include <cstdint>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "runtime/engine/inference/session.hpp"
#include "runtime/engine/inference/text_model.hpp"
#include "runtime/engine/serve/api_error.hpp"
#include "runtime/engine/serve/completion_queue.hpp"
#include "runtime/engine/serve/scored_text.hpp"

namespace dslaunch::runtime::engine::serve {

class Completion {
 public:
  // `number`: of the requests of this server. Throws ApiError for prompts that the model does not take; `most`: tokens
  // of a prompt and its text together.
  Completion(const QueuedCompletion& queued, inference::TextModel& model, const std::string& model_name,
             uint64_t number, int64_t most);

  bool is_gone() const { return exchange_->is_gone(); }
  std::chrono::steady_clock::time_point arrived() const { return arrived_; }

  size_t num_prompts() const { return prompts_.size(); }
  const std::vector<int64_t>& prompt_ids(size_t prompt) const { return prompts_[prompt].ids; }
  // Whether the client gets the log-probabilities of prompts.
  bool scores_prompts() const { return request_.echoes && request_.num_logprobs; }
  int64_t num_top() const { return request_.num_logprobs.value_or(0); }
  // `scores`: of the tokens after the first. Returns whether all prompts have theirs.
  bool take_scores(size_t prompt, std::vector<inference::TokenScore> scores);

  size_t num_choices() const { return choices_.size(); }
  size_t prompt_of(size_t choice) const { return choices_[choice].prompt; }
  int64_t num_tokens() const { return num_tokens_; }  // to add to each; 0: none
  inference::Request request_of(size_t choice) const;
  // After its prompt has its scores.
  void begin(size_t choice);
  void take(size_t choice, const inference::NewToken& token);
  bool is_finished(size_t choice) const { return choices_[choice].is_finished; }

  bool is_finished() const { return num_finished_ == choices_.size(); }
  // After the last choice has finished.
  void reply();
  void fail(const ApiError& error);

  int64_t num_prompt_tokens() const;
  int64_t num_new_tokens() const { return num_new_tokens_; }

 private:
  struct Prompt {
    std::optional<std::string> text;  // as the client has sent it
    std::vector<int64_t> ids;
    std::vector<inference::TokenScore> scores;
  };
  struct Choice {
    size_t prompt = 0;
    uint64_t repetition = 0;  // equal prompts in front of it
    std::unique_ptr<ScoredText> text;
    bool is_finished = false;
    // Of a reply that is not streamed.
    std::string whole_text;
    std::vector<int64_t> ids;
    std::vector<ScoredText::Part> parts;
    const char* finish_reason = nullptr;
  };

  void require_bounded_answer() const;
  void add_choices();
  void finish(size_t choice, const char* reason);
  void emit(size_t choice, ScoredText::Part part, bool is_prompt);
  nlohmann::ordered_json document() const;
  nlohmann::ordered_json logprobs_of(const std::vector<ScoredText::Part>& parts) const;
  nlohmann::ordered_json usage() const;
  void stream(const nlohmann::ordered_json& document);

  const CompletionRequest request_;
  const std::shared_ptr<http::Exchange> exchange_;
  const std::chrono::steady_clock::time_point arrived_;
  inference::TextModel& model_;
  const inference::TextCodec* const codec_;
  const std::string model_name_, id_;
  const int64_t created_;
  uint64_t seed_ = 0;
  int64_t num_tokens_ = 0;
  std::vector<Prompt> prompts_;
  std::vector<Choice> choices_;
  size_t num_scored_ = 0;  // prompts
  size_t num_finished_ = 0;
  int64_t num_new_tokens_ = 0;
  bool has_begun_stream_ = false;
};

}  // namespace dslaunch::runtime::engine::serve
