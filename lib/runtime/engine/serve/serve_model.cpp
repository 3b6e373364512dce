#include "runtime/engine/serve/serve_model.hpp"

#include <atomic>
#include <utility>

#include "base/deadline.hpp"
#include "base/scope_exit.hpp"
#include "runtime/engine/serve/api.hpp"
#include "runtime/engine/serve/completion_queue.hpp"
#include "runtime/engine/serve/server_metrics.hpp"

namespace dslaunch::runtime::engine::serve {
namespace {

constexpr auto kLastWrites = std::chrono::seconds(5);  // of the last responses, whose clients may be slow

}  // namespace

void serve_model(UniqueFd listener, at::Device device, const ServeModelOptions& options,
                 const ServeModelCallbacks& callbacks) {
  CompletionQueue queue(options.max_waiting);
  ServerMetrics metrics;
  Api api(options.engine.model_name, options.token, queue, metrics);
  std::atomic<const http::Server*> running{nullptr};
  const auto counts = [&running] {
    const http::Server* own = running;
    return own != nullptr ? own->counts() : http::Counts();
  };
  http::Server server(std::move(listener), options.limits, api.handlers(counts));
  running = &server;
  const ScopeExit answer_rest([&] {  // before the server ends, also when the model fails
    queue.close();
    while (queue.pop(std::chrono::milliseconds(0))) {
    }
    server.wait_until_answered(Deadline::after(kLastWrites));
  });
  const auto model = callbacks.open();
  inference::TextModel texts(*model, device, options.model, /*shows_text=*/true);
  CompletionEngine engine(texts, queue, metrics, options.engine);
  api.set_ready(engine.max_length());
  callbacks.on_ready();
  engine.run(callbacks.stop_requested, [&] {
    api.set_draining();
    server.drain();
    callbacks.on_drain();
  });
}

}  // namespace dslaunch::runtime::engine::serve
