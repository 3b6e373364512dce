#include "runtime/state/mapped_file.hpp"

#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <csignal>
#include <filesystem>
#include <fstream>

#include "support/captured_output.hpp"
#include "support/expect_error.hpp"
#include "support/temp_dir.hpp"

using namespace dslaunch;
using namespace dslaunch::runtime;

namespace {

// Room for 256 MiB more, as `ulimit -v` leaves it, until the end of the scope.
class LittleAddressSpace {
 public:
  LittleAddressSpace() {
    REQUIRE(::getrlimit(RLIMIT_AS, &before_) == 0);
    rlimit limit = before_;
    rlim_t pages = 0;
    std::ifstream("/proc/self/statm") >> pages;
    limit.rlim_cur = pages * static_cast<rlim_t>(::sysconf(_SC_PAGESIZE)) + (256U << 20);
    REQUIRE(::setrlimit(RLIMIT_AS, &limit) == 0);
  }
  ~LittleAddressSpace() { ::setrlimit(RLIMIT_AS, &before_); }
  LittleAddressSpace(const LittleAddressSpace&) = delete;
  LittleAddressSpace& operator=(const LittleAddressSpace&) = delete;

 private:
  rlimit before_{};
};

}  // namespace

TEST_CASE("a file for which the process has no room names the limits", "[runtime][safetensors]") {
  test::TempDir dir;
  const std::string path = dir / "large.bin";
  test::write_file(path, "");
  std::filesystem::resize_file(path, 1U << 30);
  const auto open = [&path] { MappedFile::open(path, "data file"); };
  CHECK_NOTHROW(open());
  const LittleAddressSpace little;
  test::expect_error(ExitCode::kNoInput, {"cannot map data file '" + path, "ulimit -v", "vm.max_map_count"}, open);
}

TEST_CASE("a process that reads behind the end of a truncated mapped file says which file", "[runtime][safetensors]") {
  const test::TempDir dir;
  const std::string path = dir.write("train\x1b.bin", std::string(3 << 12, 'x'));
  const test::CapturedOutput err(2);
  MappedFile::open(path, "model");  // its range is used again
  const pid_t child = ::fork();
  if (child == 0) {
    const rlimit no_core{};
    ::setrlimit(RLIMIT_CORE, &no_core);
    report_mapped_file_faults();
    const auto file = MappedFile::open(path, "data file");
    if (::truncate(path.c_str(), 10) != 0) ::_exit(1);
    ::_exit(file->data()[2 << 12]);
  }
  int status = 0;
  REQUIRE(::waitpid(child, &status, 0) == child);
  CHECK((WIFSIGNALED(status) && WTERMSIG(status) == SIGBUS));
  CHECK_THAT(err.text(), Catch::StartsWith("error: reading a page of data file '" + dir.path() +
                                           "/train\\x1b.bin' failed (SIGBUS): the file is shorter than"));
}
