#include "base/nearest_name.hpp"

#include <catch2/catch.hpp>
#include <cerrno>

#include "support/temp_dir.hpp"

using dslaunch::describe_open_error;
using dslaunch::did_you_mean;
using dslaunch::did_you_mean_file;
using dslaunch::nearest_names;

TEST_CASE("a typo finds the name it was meant to be", "[base][nearest_name]") {
  std::vector<std::string> known{"gradient_clipping", "gradient_accumulation_steps", "steps_per_print"};
  CHECK(nearest_names("gradient_clipp1ng", known) == std::vector<std::string>{"gradient_clipping"});
  CHECK(nearest_names("gradient-clipping", known) == std::vector<std::string>{"gradient_clipping"});
  CHECK(nearest_names("steps_per_pirnt", known) == std::vector<std::string>{"steps_per_print"});
}

TEST_CASE("a name far from all others gets no suggestion", "[base][nearest_name]") {
  CHECK(did_you_mean("banana", {"gradient_clipping", "lr"}).empty());
  CHECK(did_you_mean("x", {"lr"}).empty());
  CHECK(did_you_mean("foo", {"aio"}).empty());
  CHECK(did_you_mean("rl", {"lr"}) == " (did you mean 'lr'?)");
}

TEST_CASE("a name of a megabyte is compared with nothing", "[base][nearest_name]") {
  const std::vector<std::string> known(200, "gradient_accumulation_steps");
  CHECK(nearest_names(std::string(1 << 20, 'a'), known).empty());  // a minute and gigabytes, if it were
}

TEST_CASE("two near names are both offered, nearest first", "[base][nearest_name]") {
  CHECK(did_you_mean("--num_gpu", {"--num_gpus", "--num_cpus"}, 2) == " (did you mean '--num_gpus' or '--num_cpus'?)");
}

TEST_CASE("a misspelt path finds the file beside it, or in a directory of a similar name", "[base][nearest_name]") {
  const dslaunch::test::TempDir dir;
  std::filesystem::create_directories(dir / "data/sets");
  dslaunch::test::write_file(dir / "data/sets/train.npy", "x");
  const std::string there = std::string(" (did you mean '") + (dir / "data/sets/train.npy") + "'?)";
  CHECK(did_you_mean_file(dir / "data/sets/trian.npy") == there);
  CHECK(did_you_mean_file(dir / "dta/sets/train.npy") == there);
  CHECK(did_you_mean_file(dir / "data/stes/train.npy") == there);
  CHECK(did_you_mean_file(dir / "data/sets/validation.npy").empty());
  CHECK(did_you_mean_file(dir / "dta/sets/other.npy").empty());
  CHECK(did_you_mean_file(dir / "data/sets/train.npy").empty());
  CHECK(did_you_mean_file("").empty());
  CHECK(describe_open_error(dir / "data/sets/trian.npy", ENOENT) == "No such file or directory" + there);
  CHECK(describe_open_error(dir / "data/sets/trian.npy", EACCES) == "Permission denied");
}
