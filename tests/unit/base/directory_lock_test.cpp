#include "base/directory_lock.hpp"

#include <sys/stat.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <cstdlib>
#include <filesystem>

#include "base/error.hpp"
#include "support/temp_dir.hpp"

namespace {

using dslaunch::DirectoryLock;

// Root may open any file: as long as this lives, the process is an ordinary user, whose own files can refuse it.
class OrdinaryUser {
 public:
  explicit OrdinaryUser(const std::string& folder) : was_root_(::geteuid() == 0) {
    constexpr uid_t kNobody = 65534;
    if (!was_root_) return;
    REQUIRE(::chown(folder.c_str(), kNobody, static_cast<gid_t>(-1)) == 0);
    REQUIRE(::seteuid(kNobody) == 0);
  }
  ~OrdinaryUser() {
    if (was_root_ && ::seteuid(0) != 0) std::abort();
  }

 private:
  const bool was_root_;
};

}  // namespace

TEST_CASE("a folder's lock is held by one, named to the next, and gone with its holder", "[base]") {
  const dslaunch::test::TempDir folder;
  const std::string file = folder / "lock";
  {
    const auto lock = DirectoryLock::try_lock(file, "the first job");
    CHECK(lock.ok());
    CHECK(DirectoryLock::try_lock(file, "the second job").error() == "the first job");
  }
  CHECK_FALSE(std::filesystem::exists(file));
  CHECK(DirectoryLock::try_lock(file, "the second job").ok());
}

TEST_CASE("a run folder that a job's launcher holds is free for one of that job's own ranks alone", "[base]") {
  const dslaunch::test::TempDir folder;
  const auto held = DirectoryLock::lock_run_directory(folder.path(), DirectoryLock::launcher_of("j7"));
  const auto refused = [&](const std::string& job) {
    CHECK_THROWS_WITH(DirectoryLock::lock_run_directory(folder.path(), "rank 0", job),
                      Catch::Matchers::Contains("job j7 is"));
  };
  {
    const auto rank = DirectoryLock::lock_run_directory(folder.path(), "rank 0", "j7");
    CHECK_THROWS_WITH(DirectoryLock::lock_run_directory(folder.path(), "another rank 0", "j7"),
                      Catch::Matchers::Contains("rank 0 is using it"));
    refused("j");
    refused("");
  }
  CHECK(std::filesystem::exists(folder / ".lock"));  // the launcher's still
  CHECK_NOTHROW(DirectoryLock::lock_run_directory(folder.path(), "rank 0", "j7"));
  refused("j");
}

TEST_CASE("what another user's dead job left behind does not keep a folder taken", "[base]") {
  const dslaunch::test::TempDir folder;
  const OrdinaryUser user(folder.path());
  const std::string file = folder.write("lock", "a dead job");
  REQUIRE(::chmod(file.c_str(), 0444) == 0);

  SECTION("it makes room for a file of one's own") {
    const auto lock = DirectoryLock::try_lock(file, "my job");
    CHECK(lock.ok());
    CHECK(dslaunch::test::read_file(file) == "my job");
  }
  SECTION("in a folder where it cannot be removed it is locked as it is") {
    REQUIRE(::chmod(folder.path().c_str(), 0555) == 0);
    {
      const auto lock = DirectoryLock::try_lock(file, "my job");
      CHECK(lock.ok());
      CHECK(DirectoryLock::try_lock(file, "the next job").error() == "a dead job");
    }
    CHECK(DirectoryLock::try_lock(file, "the next job").ok());
    CHECK(::chmod(folder.path().c_str(), 0755) == 0);
  }
  SECTION("a pipe of this name waits for nobody") {
    std::filesystem::remove(file);
    REQUIRE(::mkfifo(file.c_str(), 0444) == 0);
    CHECK(DirectoryLock::try_lock(file, "my job").ok());
  }
  SECTION("one that cannot even be read is an error that names it") {
    REQUIRE(::chmod(file.c_str(), 0) == 0);
    CHECK_THROWS_WITH(DirectoryLock::try_lock(file, "my job"), Catch::Matchers::Contains(file));
  }
}

TEST_CASE("a lock that leads to another file leaves that as it is", "[base]") {
  const dslaunch::test::TempDir folder;
  const std::string victim = folder.write("victim", "precious"), file = folder / "lock";
  SECTION("a symbolic link is refused") {
    REQUIRE(::symlink(victim.c_str(), file.c_str()) == 0);
    CHECK_THROWS_AS(DirectoryLock::try_lock(file, "my job"), dslaunch::SystemError);
  }
  SECTION("another name of one is locked") {
    REQUIRE(::link(victim.c_str(), file.c_str()) == 0);
    CHECK(DirectoryLock::try_lock(file, "my job").ok());
  }
  CHECK(dslaunch::test::read_file(victim) == "precious");
}
