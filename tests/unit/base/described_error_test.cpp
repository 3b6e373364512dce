#include "base/described_error.hpp"

#include <catch2/catch.hpp>
#include <filesystem>
#include <new>
#include <stdexcept>
#include <system_error>

#include "base/error.hpp"

using namespace dslaunch;

TEST_CASE("every exception has an exit code and a line", "[base][described_error]") {
  auto check = [](const std::exception& error, ExitCode code, const std::string& words) {
    const DescribedError end = described(error);
    CHECK(to_int(end.code) == to_int(code));
    CHECK_THAT(end.text, Catch::Matchers::Contains(words));
  };
  check(UserError(ExitCode::kBadInput, "a bad file"), ExitCode::kBadInput, "a bad file");
  check(SystemError("open", "/x", ENOENT), ExitCode::kIoError, "open /x: No such file");
  check(SystemError("signalfd", "for our signals", EMFILE), ExitCode::kUnavailable, "ulimit -n");
  check(SystemError("create", "'/x'", ENFILE, ExitCode::kCannotCreate), ExitCode::kUnavailable, "create '/x'");
  check(std::bad_alloc(), ExitCode::kUnavailable, "out of memory");
  check(std::system_error(std::make_error_code(std::errc::resource_unavailable_try_again)), ExitCode::kUnavailable,
        "cannot create a thread");
  check(std::filesystem::filesystem_error("status", "/gone", std::make_error_code(std::errc::io_error)),
        ExitCode::kIoError, "/gone");
  check(std::out_of_range("deque::at"), ExitCode::kInternal, "internal error: deque::at");
}
