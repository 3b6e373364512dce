// The paths of the server: which requests are taken, and what is answered at once. On the HTTP server's thread.
#pragma once
#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "http/server.hpp"
#include "runtime/engine/serve/api_error.hpp"
#include "runtime/engine/serve/completion_queue.hpp"
#include "runtime/engine/serve/server_metrics.hpp"

namespace dslaunch::runtime::engine::serve {

class Api {
 public:
  // `token`: what clients authorize with; empty: none, and then only what this machine's programs ask is answered.
  Api(std::string model_name, std::string token, CompletionQueue& queue, ServerMetrics& metrics);

  // Any thread, once: the model has been read. `max_length`: tokens of a prompt and its text together.
  void set_ready(int64_t max_length);
  // Any thread.
  void set_draining() { is_draining_ = true; }
  // Which the server that `counts` asks calls; both must outlive it.
  http::Handlers handlers(std::function<http::Counts()> counts);

 private:
  std::optional<http::Reply> refuse(const http::Request& head) const;
  void handle(const http::Request& request, const std::shared_ptr<http::Exchange>& exchange);
  void take_completion(const http::Request& request, const std::shared_ptr<http::Exchange>& exchange);
  void require_authorized(const http::Request& head) const;
  void require_working() const;
  std::string models() const;

  const std::string model_name_, token_;
  const int64_t created_;
  CompletionQueue& queue_;
  ServerMetrics& metrics_;
  std::function<http::Counts()> counts_;
  int64_t max_length_ = 0;  // before is_ready_
  std::atomic<bool> is_ready_{false}, is_draining_{false};
};

}  // namespace dslaunch::runtime::engine::serve
