#include "launch/agent/error_files.hpp"

#include <catch2/catch.hpp>
#include <filesystem>
#include <fstream>

using namespace dslaunch::launch;

TEST_CASE("torch's error file gives the first line of the exception", "[launch][error_files]") {
  CHECK(message_in_error_file(R"({"message": {"message": "ValueError: no\nmore", "extraInfo": {"timestamp": "1"}}})") ==
        "ValueError: no");
  CHECK(message_in_error_file(R"({"message": "plain"})") == "plain");
  for (const char* text : {"", "{", "[]", "{}", R"({"message": 3})"}) CHECK(message_in_error_file(text).empty());
}

TEST_CASE("error files are in a private directory that is removed with its owner", "[launch][error_files]") {
  std::filesystem::path dir;
  {
    ErrorFiles files("job-1");
    dir = std::filesystem::path(files.path_of(3)).parent_path();
    CHECK(std::filesystem::is_directory(dir));
    CHECK((std::filesystem::status(dir).permissions() & std::filesystem::perms::others_all) ==
          std::filesystem::perms::none);
    CHECK(files.message_of(3).empty());
    std::ofstream(files.path_of(3)) << R"({"message": "gone wrong"})";
    CHECK(files.message_of(3) == "gone wrong");
  }
  CHECK_FALSE(std::filesystem::exists(dir));
}
