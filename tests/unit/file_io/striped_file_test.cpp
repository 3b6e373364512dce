#include "file_io/striped_file.hpp"

#include <sys/stat.h>

#include <algorithm>
#include <catch2/catch.hpp>
#include <filesystem>
#include <map>

#include "support/expect_error.hpp"
#include "support/temp_dir.hpp"

using namespace dslaunch;
using namespace dslaunch::file_io;

namespace {

int64_t size_of(const StripedFile& file, int index) {
  struct stat status {};
  REQUIRE(::stat(file.path(index).c_str(), &status) == 0);
  return status.st_size;
}

}  // namespace

TEST_CASE("stripes of a range go round the directories", "[file_io]") {
  const test::TempDir a, b, c;
  const StripedFile file({.directories = {a.path(), b.path(), c.path()}, .bytes = 8192 * 7 + 10, .stripe_bytes = 8192});
  // Stripes 0 3 6, 1 4 7 (10 bytes, a whole page), 2 5.
  CHECK(size_of(file, 0) == 3 * 8192);
  CHECK(size_of(file, 1) == 2 * 8192 + 4096);
  CHECK(size_of(file, 2) == 2 * 8192);
  const auto place = file.locate(4 * 8192 + 100);
  CHECK(place.file == 1);
  CHECK(place.offset == 8192 + 100);
  CHECK(place.bytes == 8192 - 100);
  int64_t most_offset = 0;
  // No two bytes of the range share a place.
  std::map<std::pair<int, int64_t>, int64_t> seen;
  for (int64_t at = 0; at < file.bytes(); ++at) {
    const auto each = file.locate(at);
    seen.emplace(std::pair(each.file, each.offset), at);
    most_offset = std::max(most_offset, each.offset);
  }
  CHECK(most_offset < size_of(file, 0));
  CHECK(seen.size() == static_cast<size_t>(file.bytes()));
  for (const auto* dir : {&a, &b, &c}) CHECK(std::filesystem::is_empty(dir->path()));
}

TEST_CASE("a striped file that is smaller than its stripes leaves files empty", "[file_io]") {
  const test::TempDir dir;
  const StripedFile file({.directories = {dir.path(), dir.path()}, .bytes = 100, .stripe_bytes = 4096});
  CHECK(size_of(file, 0) == 4096);
  CHECK(size_of(file, 1) == 0);
}

TEST_CASE("a directory that cannot hold a striped file is named with the reason", "[file_io]") {
  const test::TempDir dir;
  const auto create = [&](const std::string& directory, int64_t bytes) {
    const StripedFile file({.directories = {directory}, .bytes = bytes});
  };
  CHECK(test::message_of(ExitCode::kCannotCreate, dir.path(), [&] { create(dir / "absent", 5000); }) ==
        "create a file of 8192 bytes in 'DIR/absent': No such file or directory");
  // More than any file system of this machine has, or lets a file have.
  CHECK_THROWS_WITH(create(dir.path(), int64_t{1} << 62), Catch::Contains("reserve 4611686018427387904 bytes"));
}

TEST_CASE("blocks that are not aligned go through the page cache", "[file_io]") {
  const test::TempDir dir;
  StripedFile file({.directories = {dir.path()}, .bytes = 1 << 20, .note = [](const auto&) {}});
  if (!file.uses_direct(0)) return;  // this file system refuses O_DIRECT
  const auto is_direct = [&](uintptr_t address, int64_t bytes, int64_t offset) {
    Block block{.data = reinterpret_cast<std::byte*>(address), .bytes = bytes, .offset = offset};
    file.open_block(0, block);
    return block.is_direct;
  };
  CHECK(is_direct(4096, 8192, 4096));
  CHECK_FALSE(is_direct(4096 + 8, 8192, 4096));
  CHECK_FALSE(is_direct(4096, 8191, 4096));
  CHECK_FALSE(is_direct(4096, 8192, 512));
  file.give_up_direct(0);
  CHECK_FALSE(is_direct(4096, 8192, 4096));
}
