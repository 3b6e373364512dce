#include "base/unshare_file.hpp"

#include <sys/stat.h>

#include <catch2/catch.hpp>
#include <filesystem>

#include "support/temp_dir.hpp"

using namespace dslaunch;
namespace fs = std::filesystem;

TEST_CASE("what is written after unshare_file changes no file of another name", "[base][unshare_file]") {
  const test::TempDir dir;
  const std::string mine = dir.write("mine", "mine"), path = dir / "metrics.jsonl";
  SECTION("a symbolic link") {
    fs::create_symlink(mine, path);
  }
  SECTION("a hard link") {
    fs::create_hard_link(mine, path);
  }
  SECTION("a link that leads nowhere") {
    fs::create_symlink(dir / "nowhere", path);
  }
  SECTION("nothing") {}
  unshare_file(path);
  test::write_file(path, "new");
  CHECK(test::read_file(mine) == "mine");
  CHECK(test::read_file(path) == "new");
  CHECK_FALSE(fs::exists(dir / "nowhere"));
}

TEST_CASE("files that are not shared stay, links to append to go", "[base][unshare_file]") {
  const test::TempDir dir;
  const std::string mine = dir.write("mine", "mine"), pipe = dir / "pipe";
  REQUIRE(::mkfifo(pipe.c_str(), 0600) == 0);
  for (const auto& path : {mine, pipe, dir.path()}) {
    unshare_file(path);
    remove_symbolic_link(path);
    CHECK(fs::exists(path));
  }
  fs::create_symlink(mine, dir / "link");
  remove_symbolic_link(dir / "link");
  CHECK_FALSE(fs::exists(dir / "link"));
  CHECK(test::read_file(mine) == "mine");
}
