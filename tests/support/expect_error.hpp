// Catch2 checks that an expression throws our typed error with a code and a message that holds all given parts.
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

}  // namespace dslaunch::test
