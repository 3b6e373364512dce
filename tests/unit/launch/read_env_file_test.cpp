#include "launch/plan/read_env_file.hpp"

#include <unistd.h>

#include <catch2/catch.hpp>

#include "support/expect_error.hpp"
#include "support/temp_dir.hpp"

using namespace dslaunch;
using namespace dslaunch::launch;
using test::expect_error;

namespace {

struct stat file_with(uid_t owner, gid_t group, mode_t mode) {
  struct stat file {};
  file.st_uid = owner;
  file.st_gid = group;
  file.st_mode = mode;
  return file;
}

}  // namespace

TEST_CASE("a missing or unusable environment file is named", "[launch][read_env_file]") {
  test::TempDir dir;
  std::vector<std::string> warnings;
  auto read = [&](const std::string& path) { read_env_file({path, true}, warnings); };
  expect_error(ExitCode::kNoInput, {dir / "gone", "No such file"}, [&] { read(dir / "gone"); });
  expect_error(ExitCode::kNoInput, {"is a directory"}, [&] { read(dir.path()); });
  expect_error(ExitCode::kBadInput, {"/dev/zero", "bytes"}, [&] { read("/dev/zero"); });
  test::write_file(dir / "bad", "A\n");
  expect_error(ExitCode::kBadInput, {(dir / "bad") + ":1:2:"}, [&] { read(dir / "bad"); });
}

TEST_CASE("only the user, root and the user's primary group may be able to write it", "[launch][read_env_file]") {
  auto others = [](uid_t owner, gid_t group, mode_t mode) {
    return other_writers(file_with(owner, group, S_IFREG | mode), 1000, 100);
  };
  for (uid_t owner : {1000, 0}) {
    for (mode_t mode : {0644, 0600, 0400}) CHECK(others(owner, 7, mode).empty());
    CHECK(others(owner, 100, 0664).empty());
    CHECK(others(owner, 7, 0664).find("a group can write it") == 0);
    CHECK(others(owner, 100, 0666).find("all users can write it") == 0);
  }
  const std::string foreign = others(54321, 100, 0600);
  CHECK(foreign.find("another user owns it") == 0);
  CHECK(foreign.find("uid 54321") != std::string::npos);
  CHECK(foreign.find("mode 0600") != std::string::npos);
  CHECK(other_writers(file_with(1000, 5, S_IFCHR | 0620), 1000, 100).empty());
}

TEST_CASE("an environment file writable by others is refused if found, a warning if named", "[launch][read_env_file]") {
  test::TempDir dir;
  const std::string path = dir / ".deepspeed_env";
  test::write_file(path, "LD_PRELOAD=evil.so\n");
  REQUIRE(::chmod(path.c_str(), 0666) == 0);
  std::vector<std::string> warnings;
  expect_error(ExitCode::kPermission, {path, "all users can write it", "mode 0666", "DS_ENV_FILE"}, [&] {
    read_env_file({path, false}, warnings);
  });
  CHECK(warnings.empty());
  CHECK(read_env_file({path, true}, warnings) == Assignments{{"LD_PRELOAD", "evil.so"}});
  REQUIRE(warnings.size() == 1);
  CHECK(warnings[0].find("mode 0666") != std::string::npos);
}

TEST_CASE("a pipe found as environment file is not waited for", "[launch][read_env_file]") {
  test::TempDir dir;
  std::vector<std::string> warnings;
  REQUIRE(::mkfifo((dir / ".deepspeed_env").c_str(), 0600) == 0);
  expect_error(ExitCode::kNoInput, {"not a plain file"}, [&] {
    read_env_file({dir / ".deepspeed_env", false}, warnings);
  });
}
