// What a client has done wrong, or the server cannot do, as OpenAI's API says it.
#pragma once
#include <string>

#include "base/error.hpp"
#include "http/exchange.hpp"

namespace dslaunch::runtime::engine::serve {

class ApiError : public UserError {
 public:
  // `param`: the field of the request; `code`: a word for programs. Both may be empty.
  ApiError(int status, const std::string& message, std::string param = "", std::string code = "");

  int status() const { return status_; }
  // {"error": {"message", "type", "param", "code"}}, on one line.
  std::string document() const;
  http::Reply reply() const;

 private:
  int status_;
  std::string param_, code_;
};

}  // namespace dslaunch::runtime::engine::serve
