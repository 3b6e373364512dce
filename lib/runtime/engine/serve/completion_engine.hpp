// Answers requests with a model: texts of several requests are written side by side, and requests join while others are
// written. On one thread, the only one that uses the model.
#pragma once
#include <chrono>
#include <cstdint>
#include <deque>
#include <functional>
#include <list>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "base/deadline.hpp"
#include "runtime/engine/inference/session.hpp"
#include "runtime/engine/inference/text_model.hpp"
#include "runtime/engine/serve/completion.hpp"
#include "runtime/engine/serve/completion_queue.hpp"
#include "runtime/engine/serve/server_metrics.hpp"

namespace dslaunch::runtime::engine::serve {

struct EngineOptions {
  std::string model_name;
  int64_t max_length = 0;  // tokens of a prompt and its text together; 0: what the model takes, as far as it is known
  std::chrono::milliseconds drain_timeout{30'000};  // for requests that are being answered when the server ends
};

class CompletionEngine {
 public:
  CompletionEngine(inference::TextModel& model, CompletionQueue& queue, ServerMetrics& metrics, EngineOptions options);

  // Until `stop_requested` (polled) and all that was asked before is answered, or the drain timeout is over; `on_drain`
  // is called in between. Requests that a pass fails for are answered with an error, and others are served again.
  // Throws what no later request would survive: a lost device; all requests have then been answered with 503.
  void run(const std::function<bool()>& stop_requested, const std::function<void()>& on_drain);
  // Tokens of a prompt and its text together.
  int64_t max_length() const;

 private:
  using Completions = std::list<Completion>;
  struct Text {  // a choice, or a prompt to be scored
    Completions::iterator completion;
    size_t number = 0;
  };

  void drop_gone();
  void take_new(bool is_draining);
  void admit(const QueuedCompletion& queued);
  void prove_length(const std::vector<int64_t>& prompt_ids);
  std::vector<Text> next_to_score();
  void score_next();
  void begin_texts();
  void step();
  void take(const inference::NewToken& token);
  void on_begun(Completions::iterator completion);
  void finish_if_done(Completions::iterator completion);
  void fail(Completions::iterator completion, const ApiError& error);
  void fail_all(const ApiError& error);
  void erase(Completions::iterator completion);
  void recover(const std::exception& error);
  void reset_session();
  void update_metrics();
  bool is_idle() const { return completions_.empty(); }

  inference::TextModel& model_;
  CompletionQueue& queue_;
  ServerMetrics& metrics_;
  const EngineOptions options_;
  std::unique_ptr<inference::Decoder> decoder_;
  std::unique_ptr<inference::Session> session_;
  Completions completions_;
  std::deque<Text> to_score_, to_begin_;
  std::map<int, Text> written_;  // by request of the session
  uint64_t num_completions_ = 0;
  int64_t proven_length_ = 0;  // tokens that the model has taken at once
};

}  // namespace dslaunch::runtime::engine::serve
