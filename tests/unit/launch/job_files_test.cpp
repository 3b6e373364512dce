#include "launch/agent/job_files.hpp"

#include <sys/resource.h>
#include <sys/stat.h>

#include <catch2/catch.hpp>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <optional>

#include "support/expect_error.hpp"
#include "support/temp_dir.hpp"

using namespace dslaunch;
using namespace dslaunch::launch;

namespace {

// Private folders are made below `dir` while it is there.
struct TemporaryFolder {
  explicit TemporaryFolder(const std::string& dir) { ::setenv("TMPDIR", dir.c_str(), 1); }
  ~TemporaryFolder() {
    if (before) {
      ::setenv("TMPDIR", before->c_str(), 1);
    } else {
      ::unsetenv("TMPDIR");
    }
  }
  std::optional<std::string> before =
      std::getenv("TMPDIR") == nullptr ? std::nullopt : std::optional<std::string>(std::getenv("TMPDIR"));
};

}  // namespace

TEST_CASE("copies replace the originals in the arguments and are removed afterwards", "[launch][job_files]") {
  std::string content("{\0 \n}", 5);
  std::vector<std::string> words;
  {
    JobFiles files("job-1", {{"/far/ds.json", content}, {"/other/ds.json", "x"}});
    words = files.localize({"--config", "/far/ds.json", "/far/ds.jsonx", "/other/ds.json"});
    CHECK((words[0] == "--config" && words[2] == "/far/ds.jsonx"));
    CHECK(words[1] != words[3]);
    std::ifstream copy(words[1], std::ios::binary);
    CHECK(std::string((std::istreambuf_iterator<char>(copy)), std::istreambuf_iterator<char>()) == content);
    struct stat dir {};
    REQUIRE(::stat(std::filesystem::path(words[1]).parent_path().c_str(), &dir) == 0);
    CHECK((dir.st_mode & 0777) == 0700);
  }
  CHECK_FALSE(std::filesystem::exists(std::filesystem::path(words[1]).parent_path()));
}

TEST_CASE("a file's name may be as long as names can be", "[launch][job_files]") {
  const std::string path = "/far/" + std::string(250, 'a') + ".json";
  JobFiles files("job-1", {{path, "{}"}});
  const std::string copy = files.localize({path})[0];
  CHECK(copy != path);
  CHECK(std::filesystem::exists(copy));
  CHECK(copy.ends_with("a.json"));
}

TEST_CASE("on a full disk no copies are left, and the reason is reported", "[launch][job_files]") {
  test::TempDir dir;
  const TemporaryFolder here(dir.path());
  std::signal(SIGXFSZ, SIG_IGN);  // as the launcher does
  rlimit before{};
  REQUIRE(::getrlimit(RLIMIT_FSIZE, &before) == 0);
  const rlimit small{1000, before.rlim_max};
  REQUIRE(::setrlimit(RLIMIT_FSIZE, &small) == 0);
  test::expect_error(ExitCode::kCannotCreate, {dir.path(), "File too large", "TMPDIR"}, [] {
    JobFiles files("job-1", {{"/far/a.json", "{}"}, {"/far/b.json", std::string(2000, ' ')}});
  });
  ::setrlimit(RLIMIT_FSIZE, &before);
  CHECK(std::filesystem::is_empty(dir.path()));
}
