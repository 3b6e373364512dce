#include "runtime/engine/serve/api_error.hpp"

#include <nlohmann/json.hpp>
#include <utility>

#include "base/dump_json.hpp"

namespace dslaunch::runtime::engine::serve {
namespace {

using nlohmann::ordered_json;

const char* type_of(int status) {
  if (status == 401 || status == 403) return "authentication_error";
  if (status == 429) return "rate_limit_error";
  return status >= 500 ? "server_error" : "invalid_request_error";
}

ordered_json text_or_null(const std::string& text) {
  return text.empty() ? ordered_json() : ordered_json(text);
}

}  // namespace

ApiError::ApiError(int status, const std::string& message, std::string param, std::string code)
    : UserError(ExitCode::kBadInput, message), status_(status), param_(std::move(param)), code_(std::move(code)) {}

std::string ApiError::document() const {
  return dump_json(ordered_json{{"error",
                                 {{"message", what()},
                                  {"type", type_of(status_)},
                                  {"param", text_or_null(param_)},
                                  {"code", text_or_null(code_)}}}});
}

http::Reply ApiError::reply() const {
  http::Reply reply{.status = status_, .body = document() + "\n"};
  if (status_ == 401) reply.headers.emplace_back("WWW-Authenticate", "Bearer");
  if (status_ == 429 || status_ == 503) reply.headers.emplace_back("Retry-After", "1");
  return reply;
}

}  // namespace dslaunch::runtime::engine::serve
