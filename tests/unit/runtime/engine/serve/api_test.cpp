// Who may ask which path, and what is answered without the model.
#include "runtime/engine/serve/api.hpp"

#include <catch2/catch.hpp>

#include "support/recording_exchange.hpp"

using namespace dslaunch;
using namespace dslaunch::runtime::engine::serve;
using test::RecordingExchange;

namespace {

http::Request completion(const std::string& body = R"({"prompt": "a"})") {
  return {"POST", "/v1/completions", "localhost:8000", "", "application/json", body};
}

http::Request get(const std::string& target) {
  return {"GET", target, "localhost", "", "", ""};
}

struct Served {
  explicit Served(const std::string& token = "") : api("net", token, queue, metrics) {}

  // The status of what is answered at once; 0: the request has been queued.
  int ask(const http::Request& request) {
    exchange = std::make_shared<RecordingExchange>();
    const auto handlers = api.handlers([] { return http::Counts(); });
    if (auto refusal = handlers.refuse(request)) {
      exchange->reply(*refusal);
    } else {
      handlers.handle(request, exchange);
    }
    return exchange->answer ? exchange->answer->status : 0;
  }

  CompletionQueue queue{2};
  ServerMetrics metrics;
  Api api;
  std::shared_ptr<RecordingExchange> exchange;
};

}  // namespace

TEST_CASE("completions are queued, as many as there is room for", "[runtime][engine][serve]") {
  Served served;
  served.api.set_ready(100);
  CHECK(served.ask(completion()) == 0);
  CHECK(served.ask(completion()) == 0);
  CHECK(served.ask(completion()) == 429);
  CHECK(served.exchange->document()["error"]["code"] == "rate_limit_exceeded");
  CHECK(served.exchange->answer->headers.front().first == "Retry-After");
  CHECK(served.queue.pop(std::chrono::milliseconds(0))->request.prompts[0].text == "a");
  CHECK(served.ask(completion()) == 0);
  CHECK_THAT(served.metrics.text("net", 2, {}), Catch::Contains("total{status=\"429\"} 1\n"));
}

TEST_CASE("each path has its method, its type and its answer", "[runtime][engine][serve]") {
  Served served;
  CHECK(served.ask(get("/health")) == 503);
  CHECK(served.ask(completion()) == 503);
  CHECK(served.ask(get("/metrics")) == 200);
  CHECK(served.exchange->answer->content_type.starts_with("text/plain; version=0.0.4"));
  served.api.set_ready(100);
  CHECK(served.ask(get("/health")) == 200);
  CHECK(served.ask(get("/v1/models?limit=1")) == 200);
  CHECK(served.exchange->document()["data"][0]["id"] == "net");
  CHECK(served.exchange->document()["data"][0]["max_model_len"] == 100);
  CHECK(served.ask(get("/v1/completions")) == 405);
  CHECK(served.ask(get("/v1/chat/completions")) == 404);
  CHECK(served.ask(completion("{")) == 400);
  auto other = completion();
  other.content_type = "text/plain";
  CHECK(served.ask(other) == 415);
  other.content_type = "application/json; charset=utf-8";
  CHECK(served.ask(other) == 0);
  served.api.set_draining();
  CHECK(served.ask(completion()) == 503);
  CHECK(served.ask(get("/health")) == 503);
}

TEST_CASE("with a token only those who know it are answered", "[runtime][engine][serve]") {
  Served served("secret");
  served.api.set_ready(100);
  for (const char* given :
       {"", "Bearer", "Bearer ", "Bearer secre", "Bearer secret2", "Bearer Secret", "Basic secret", "secret"}) {
    INFO(given);
    auto request = completion();
    request.authorization = given;
    CHECK(served.ask(request) == 401);
    CHECK(served.exchange->answer->headers.front().first == "WWW-Authenticate");
    request = get("/metrics");
    request.authorization = given;
    CHECK(served.ask(request) == 401);
  }
  CHECK(served.ask(get("/health")) == 200);
  auto right = completion();
  right.host = "example.com";
  for (const char* given : {"Bearer secret", "bearer secret"}) {
    right.authorization = given;
    CHECK(served.ask(right) == 0);
  }
}

TEST_CASE("without a token only names of this machine are answered", "[runtime][engine][serve]") {
  Served served;
  served.api.set_ready(100);
  for (const auto& [host, status] : std::vector<std::pair<std::string, int>>{{"localhost", 200},
                                                                             {"127.0.0.1:8000", 200},
                                                                             {"[::1]:8000", 200},
                                                                             {"", 200},
                                                                             {"evil.example:8000", 403},
                                                                             {"localhost.evil.example", 403},
                                                                             {"127.0.0.1.evil.example", 403},
                                                                             {"[::2]", 403}}) {
    INFO(host);
    auto request = get("/v1/models");
    request.host = host;
    CHECK(served.ask(request) == status);
  }
}
