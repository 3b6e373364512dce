// Answers requests over HTTP with a model, until it is told to stop.
#pragma once
#include <ATen/core/Tensor.h>

#include <functional>
#include <memory>
#include <string>

#include "base/unique_fd.hpp"
#include "http/server.hpp"
#include "runtime/engine/inference/infer_model.hpp"
#include "runtime/engine/inference/text_model.hpp"
#include "runtime/engine/serve/completion_engine.hpp"

namespace dslaunch::runtime::engine::serve {

struct ServeModelOptions {
  std::string token;         // of clients; empty: none
  size_t max_waiting = 256;  // requests in the queue
  http::Limits limits;
  inference::TextModelOptions model;
  EngineOptions engine;
};

struct ServeModelCallbacks {
  // Requests are answered with 503 until it has returned.
  std::function<std::unique_ptr<inference::InferModel>()> open;
  std::function<void()> on_ready = [] {};
  std::function<bool()> stop_requested = [] { return false; };  // polled
  std::function<void()> on_drain = [] {};                       // the server takes no requests any more
};

// `listener`: a bound and listening TCP socket. Throws as `open`, TextModel() and CompletionEngine::run().
void serve_model(UniqueFd listener, at::Device device, const ServeModelOptions& options,
                 const ServeModelCallbacks& callbacks);

}  // namespace dslaunch::runtime::engine::serve
