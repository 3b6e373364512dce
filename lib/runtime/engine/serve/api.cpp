#include "runtime/engine/serve/api.hpp"

#include <algorithm>
#include <array>
#include <ctime>
#include <functional>
#include <nlohmann/json.hpp>
#include <string_view>
#include <utility>

#include "base/dump_json.hpp"
#include "base/format.hpp"
#include "base/printable.hpp"

namespace dslaunch::runtime::engine::serve {
namespace {

using nlohmann::ordered_json;

constexpr size_t kMaxShownPath = 100;

struct Route {
  std::string_view path, method;
  bool is_open;  // without a token: what a balancer asks
};
constexpr std::array kRoutes{Route{"/v1/completions", "POST", false}, Route{"/v1/models", "GET", false},
                             Route{"/metrics", "GET", false}, Route{"/health", "GET", true}};

std::string_view path_of(const http::Request& request) {
  return std::string_view(request.target).substr(0, request.target.find('?'));
}

const Route& route_of(const http::Request& request) {
  const auto path = path_of(request);
  const auto* route = std::find_if(kRoutes.begin(), kRoutes.end(), [&](const Route& one) { return one.path == path; });
  if (route == kRoutes.end()) {
    throw ApiError(404, fmt::format("'{}' is not here: the paths are /v1/completions, /v1/models, /metrics and /health",
                                    printable(path.substr(0, kMaxShownPath))));
  }
  if (request.method != route->method) throw ApiError(405, fmt::format("{} takes {} only", path, route->method));
  return *route;
}

// In a time that does not depend on how much of it is right.
bool is_equal_text(std::string_view given, std::string_view wanted) {
  unsigned char difference = given.size() == wanted.size() ? 0 : 1;
  for (size_t i = 0; i < given.size(); ++i) {
    difference |= static_cast<unsigned char>(given[i] ^ wanted[i % wanted.size()]);
  }
  return difference == 0;
}

// Of "HOST" or "HOST:PORT". A page of a web browser may give any name an address of this machine, but cannot ask under
// a name of this machine.
bool is_name_of_this_machine(std::string_view host) {
  host = host.starts_with('[') ? host.substr(0, host.find(']') + 1) : host.substr(0, host.find(':'));
  const bool is_number = host.find_first_not_of("0123456789.") == host.npos;  // and not a name that begins with one
  return host.empty() || host == "localhost" || host == "[::1]" || (is_number && host.starts_with("127."));
}

}  // namespace

Api::Api(std::string model_name, std::string token, CompletionQueue& queue, ServerMetrics& metrics)
    : model_name_(std::move(model_name)),
      token_(std::move(token)),
      created_(static_cast<int64_t>(std::time(nullptr))),
      queue_(queue),
      metrics_(metrics) {}

void Api::set_ready(int64_t max_length) {
  max_length_ = max_length;
  is_ready_ = true;
}

http::Handlers Api::handlers(std::function<http::Counts()> counts) {
  counts_ = std::move(counts);
  return {.refuse = [this](const http::Request& head) { return refuse(head); },
          .handle = [this](const http::Request& request,
                           const std::shared_ptr<http::Exchange>& exchange) { handle(request, exchange); },
          .error_reply = [](int status, const std::string& message) { return ApiError(status, message).reply(); }};
}

// Before the body is read.
std::optional<http::Reply> Api::refuse(const http::Request& head) const try {
  if (!route_of(head).is_open) require_authorized(head);
  return std::nullopt;
} catch (const ApiError& error) {
  return error.reply();
}

void Api::require_authorized(const http::Request& head) const {
  if (token_.empty()) {
    if (is_name_of_this_machine(head.host)) return;
    throw ApiError(403, fmt::format("a server without a token answers programs of this machine only, which ask "
                                    "'localhost' and not '{}'",
                                    printable(head.host.substr(0, kMaxShownPath))));
  }
  constexpr std::string_view kScheme = "bearer ";
  const std::string_view given = head.authorization;
  const bool is_bearer =
      given.size() > kScheme.size() && std::equal(kScheme.begin(), kScheme.end(), given.begin(), [](char a, char b) {
        return a == (b >= 'A' && b <= 'Z' ? static_cast<char>(b - 'A' + 'a') : b);
      });
  if (is_bearer && is_equal_text(given.substr(kScheme.size()), token_)) return;
  throw ApiError(401, "the request's header has to be: Authorization: Bearer TOKEN, with the token of this server", "",
                 "invalid_api_key");
}

void Api::require_working() const {
  if (!is_ready_) throw ApiError(503, "the model is being read; try again later");
  if (is_draining_) throw ApiError(503, "the server ends");
}

void Api::handle(const http::Request& request, const std::shared_ptr<http::Exchange>& exchange) try {
  const auto path = route_of(request).path;
  if (path == "/v1/completions") return take_completion(request, exchange);
  if (path == "/metrics") {
    return exchange->reply({.body = metrics_.text(model_name_, queue_.num_waiting(), counts_()),
                            .content_type = "text/plain; version=0.0.4; charset=utf-8"});
  }
  require_working();
  exchange->reply({.body = path == "/health" ? "{\"status\": \"ok\"}\n" : models()});
} catch (const ApiError& error) {
  if (route_of(request).path == "/v1/completions") metrics_.count_request(error.status());
  exchange->reply(error.reply());
}

void Api::take_completion(const http::Request& request, const std::shared_ptr<http::Exchange>& exchange) {
  require_working();
  // A page of a web browser can send other types without asking whether it may.
  const auto type = std::string_view(request.content_type).substr(0, request.content_type.find(';'));
  if (type != "application/json") {
    throw ApiError(415, "the request's header has to be: Content-Type: application/json");
  }
  QueuedCompletion queued{.request = parse_completion(request.body, model_name_), .exchange = exchange};
  switch (queue_.push(std::move(queued))) {
    case CompletionQueue::Outcome::kTaken:
      return;
    case CompletionQueue::Outcome::kFull:
      throw ApiError(429, "the queue of requests is full; try again later", "", "rate_limit_exceeded");
    case CompletionQueue::Outcome::kClosed:
      throw ApiError(503, "the server ends");
  }
}

std::string Api::models() const {
  const ordered_json model{{"id", model_name_},
                           {"object", "model"},
                           {"created", created_},
                           {"owned_by", "dslaunch"},
                           {"max_model_len", max_length_}};
  return dump_json(ordered_json{{"object", "list"}, {"data", ordered_json::array({model})}}) + "\n";
}

}  // namespace dslaunch::runtime::engine::serve
