#include "launch/job_files.hpp"

#include <sys/stat.h>

#include <catch2/catch.hpp>
#include <filesystem>
#include <fstream>
#include <iterator>

using namespace dslaunch::launch;

TEST_CASE("copies take the originals' place in the arguments and are gone afterwards", "[launch][job_files]") {
  std::string content("{\0 \n}", 5);
  std::vector<std::string> words;
  {
    JobFiles files("job-1", {{"/far/ds.json", content}, {"/other/ds.json", "x"}});
    words = files.localize({"--config", "/far/ds.json", "/far/ds.jsonx", "/other/ds.json"});
    CHECK((words[0] == "--config" && words[2] == "/far/ds.jsonx"));
    CHECK(words[1] != words[3]);
    std::ifstream copy(words[1], std::ios::binary);
    CHECK(std::string((std::istreambuf_iterator<char>(copy)), std::istreambuf_iterator<char>()) == content);
    struct stat folder {};
    REQUIRE(::stat(std::filesystem::path(words[1]).parent_path().c_str(), &folder) == 0);
    CHECK((folder.st_mode & 0777) == 0700);
  }
  CHECK_FALSE(std::filesystem::exists(std::filesystem::path(words[1]).parent_path()));
}
