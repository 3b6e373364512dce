#include "runtime/device/device_module.hpp"

#include <catch2/catch.hpp>
#include <cstdlib>
#include <string>

#include "base/error.hpp"

using dslaunch::ExitCode;
using dslaunch::UserError;

namespace {

// Puts the variable back to what it was.
struct EnvironmentGuard {
  const char* name;
  const char* found = std::getenv(name);
  std::string before = found != nullptr ? found : "";
  ~EnvironmentGuard() {
    if (found != nullptr) {
      ::setenv(name, before.c_str(), 1);
    } else {
      ::unsetenv(name);
    }
  }
};

}  // namespace

TEST_CASE("without the CUDA module its functions are unavailable", "[runtime][device]") {
  const EnvironmentGuard guard{.name = "DSLAUNCH_MODULE_DIR"};
  ::setenv("DSLAUNCH_MODULE_DIR", "/nonexistent", 1);
  try {
    (void)dslaunch::runtime::device::module();
    FAIL("no error");
  } catch (const UserError& error) {
    CHECK(error.code() == ExitCode::kUnavailable);
  }
}
