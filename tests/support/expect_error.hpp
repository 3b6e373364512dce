// Catch2 checks of the typed error that an expression throws: its code, and parts of its message or all of it.
#pragma once
#include <catch2/catch.hpp>
#include <string>
#include <vector>

#include "base/error.hpp"

namespace dslaunch::test {

template <class Call>
void expect_error(ExitCode code, const std::vector<std::string>& parts, Call&& call) {
  try {
    call();
  } catch (const Error& error) {
    INFO(error.what());
    CHECK(to_int(error.code()) == to_int(code));
    for (const auto& part : parts) CHECK_THAT(std::string(error.what()), Catch::Matchers::Contains(part));
    return;
  }
  FAIL_CHECK("no error was thrown; expected code " << to_int(code));
}

// The whole message, with each `path` in it replaced by DIR.
template <class Call>
std::string message_of(ExitCode code, const std::string& path, Call&& call) {
  try {
    call();
  } catch (const Error& error) {
    std::string message = error.what();
    CAPTURE(message);
    CHECK(to_int(error.code()) == to_int(code));
    for (size_t at = 0; !path.empty() && (at = message.find(path, at)) != message.npos;) {
      message.replace(at, path.size(), "DIR");
    }
    return message;
  }
  return "no error was thrown";
}

}  // namespace dslaunch::test
