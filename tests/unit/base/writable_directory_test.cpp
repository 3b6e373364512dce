#include "base/writable_directory.hpp"

#include <catch2/catch.hpp>
#include <cerrno>

#include "support/temp_dir.hpp"

using dslaunch::check_writable;
using dslaunch::check_writable_file;
using dslaunch::written_object;

TEST_CASE("a directory is writable when its nearest existing parent is", "[base][writable_directory]") {
  dslaunch::test::TempDir folder;
  CHECK(check_writable(folder.path()).ok());
  CHECK(check_writable(folder.path() + "/a/b").ok());
  CHECK(check_writable_file(folder.path() + "/a/b").ok());
}

TEST_CASE("a path that cannot become a directory is named", "[base][writable_directory]") {
  dslaunch::test::TempDir folder;
  const std::string file = folder.write("file", "");
  CHECK(check_writable_file(file).ok());
  REQUIRE_FALSE(check_writable(file + "/a").ok());
  CHECK(check_writable(file + "/a").error().starts_with(file + " is "));
  REQUIRE_FALSE(check_writable_file(folder.path()).ok());
  CHECK(check_writable_file(folder.path()).error().starts_with(folder.path() + " is "));
}

TEST_CASE("a write to a full disk says what it takes and what is free", "[base][writable_directory]") {
  dslaunch::test::TempDir folder;
  const std::string text = written_object(folder.path(), 1536, ENOSPC);
  CHECK_THAT(text, Catch::StartsWith("'" + folder.path() + "' (1.50 KiB to write, ") && Catch::EndsWith(" free)"));
  CHECK(written_object(folder.path(), 1536, EIO) == "'" + folder.path() + "'");
  CHECK(written_object("/proc/none/x", 1536, ENOSPC) == "'/proc/none/x'");
}
