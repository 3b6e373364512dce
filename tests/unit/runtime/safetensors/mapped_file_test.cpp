#include "runtime/state/mapped_file.hpp"

#include <sys/resource.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <filesystem>
#include <fstream>

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
