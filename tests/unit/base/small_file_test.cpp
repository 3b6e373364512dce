#include "base/small_file.hpp"

#include <sys/stat.h>

#include <catch2/catch.hpp>
#include <fstream>
#include <thread>

#include "support/temp_dir.hpp"

using namespace dslaunch;

TEST_CASE("a file is read whole, and so is a pipe", "[base][small_file]") {
  test::TempDir folder;
  const std::string text(300'000, 'x');  // several reads
  CHECK(read_small_file(folder.write("file", text)).bytes == text);
  const std::string pipe = folder / "pipe";
  REQUIRE(::mkfifo(pipe.c_str(), 0600) == 0);
  std::thread writer([&] { std::ofstream(pipe) << text; });
  const auto read = read_small_file(pipe);
  writer.join();
  CHECK(read.bytes == text);
  CHECK(read.outcome.ok());
}

TEST_CASE("a plain file is read, and nothing else in its place", "[base][small_file]") {
  test::TempDir folder;
  CHECK(read_plain_file(folder.write("file", "text")).bytes == "text");
  const std::string pipe = folder / "pipe";
  REQUIRE(::mkfifo(pipe.c_str(), 0600) == 0);
  for (const std::string& path : {pipe, folder.path(), std::string("/dev/zero")}) {
    CHECK_THAT(read_plain_file(path).outcome.error(), Catch::Contains("not a plain file"));
  }
  CHECK_THAT(read_plain_file("/nonexistent/file").outcome.error(), Catch::Contains("No such file"));
}

TEST_CASE("a file without an end is given up", "[base][small_file]") {
  const auto read = read_small_file("/dev/zero", 1000);
  CHECK(read.too_large);
  CHECK_THAT(read.outcome.error(), Catch::Contains("1000 bytes"));
  CHECK(read.bytes.size() > 1000);
  CHECK(read.bytes.size() < 1'000'000);
}

TEST_CASE("a file of just as many bytes as it may have is read", "[base][small_file]") {
  test::TempDir folder;
  const auto path = folder.write("file", std::string(100'000, 'x'));
  CHECK_FALSE(read_small_file(path, 100'000).too_large);
  CHECK(read_small_file(path, 99'999).too_large);
}

TEST_CASE("what cannot be read has the reason", "[base][small_file]") {
  CHECK_THAT(read_small_file("/nonexistent/file").outcome.error(), Catch::Contains("No such file"));
  CHECK_THAT(read_small_file("/").outcome.error(), Catch::Contains("directory"));
}

TEST_CASE("a whole file has no limit, and what cannot be read is nothing", "[base][small_file]") {
  test::TempDir dir;
  const std::string bytes = std::string(kMaxSmallBytes + 1, 'x') + std::string("\0\r\n", 3);
  test::write_file(dir / "file", bytes);
  CHECK(read_whole_file(dir / "file") == bytes);
  CHECK(read_whole_file("/proc/self/stat").value_or("").size() > 10);
  CHECK_FALSE(read_whole_file(dir / "none"));
  CHECK_FALSE(read_whole_file(dir.path()));
}
