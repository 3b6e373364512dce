#include "runtime/offload/file_memory.hpp"

#include <ATen/ATen.h>

#include <catch2/catch.hpp>
#include <filesystem>

#include "support/expect_error.hpp"
#include "support/temp_dir.hpp"

using namespace dslaunch;
using namespace dslaunch::runtime::offload;

TEST_CASE("memory in files is zero, can be written, and leaves nothing behind", "[runtime][offload]") {
  const test::TempDir dir;
  const at::Tensor a = map_file_memory(10'001, at::kFloat, dir.path());
  const at::Tensor b = map_file_memory(10'001, at::kFloat, dir.path());
  CHECK(a.count_nonzero().item<int64_t>() == 0);
  a.copy_(at::arange(10'001, at::kFloat));
  b.fill_(2);
  CHECK(at::equal(a, at::arange(10'001, at::kFloat)));
  CHECK(std::filesystem::is_empty(dir.path()));
}

TEST_CASE("a directory that cannot hold state is named, with the system's reason", "[runtime][offload]") {
  const test::TempDir dir;
  test::write_file(dir.path() + "/file", "");
  test::expect_error(ExitCode::kCannotCreate, {"/absent'", "--nvme_path DIR", "No such file or directory"},
                     [&] { map_file_memory(10, at::kFloat, dir.path() + "/absent"); });
  test::expect_error(ExitCode::kCannotCreate, {"/file'", "Not a directory"},
                     [&] { map_file_memory(10, at::kFloat, dir.path() + "/file"); });
  // More than any file system of this machine has, or lets a file have.
  CHECK_THROWS_WITH(
      map_file_memory(int64_t{1} << 62, at::kByte, dir.path()),
      Catch::Contains("reserve 4611686018427387904 bytes") && Catch::Contains("offload_param.nvme_path=DIR"));
}
