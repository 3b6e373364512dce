#include "launch/plan/count_samples.hpp"

#include <catch2/catch.hpp>

#include "support/expect_error.hpp"
#include "support/temp_dir.hpp"

using namespace dslaunch;
using namespace dslaunch::launch;

namespace {

std::string safetensors(const std::string& header) {
  std::string bytes(8, '\0');
  bytes[0] = static_cast<char>(header.size());
  return bytes + header;
}

std::string npy(const std::string& shape) {
  const std::string header = "{'descr': '<f4', 'fortran_order': False, 'shape': " + shape + ", }\n";
  return std::string("\x93NUMPY\x01\x00", 8) + static_cast<char>(header.size()) + std::string(1, '\0') + header;
}

}  // namespace

TEST_CASE("samples are counted by the headers of the data files", "[launch][count_samples]") {
  const test::TempDir dir;
  dir.write("a.safetensors", safetensors(R"({"__metadata__": {}, "x": {"dtype": "F32", "shape": [12, 3]}})"));
  dir.write("b.npy", npy("(5, 2)"));
  dir.write("c.npy", npy("(7,)"));
  dir.write("tokens.bin", std::string(2 * 21, 'x'));
  dir.write("bad.safetensors", safetensors("[[[["));
  dir.write("short.safetensors", "abc");
  dir.write("flat.safetensors", safetensors(R"({"x": {"dtype": "F32", "shape": []}})"));
  const auto count = [&](config::Data data) { return count_samples(data, dir.path()); };
  CHECK(count({.train = {"a.safetensors"}}) == 12);
  CHECK(count({.train = {"b.npy", "c.npy"}}) == 12);
  CHECK(count({.train = {"*.npy"}}) == 12);
  CHECK(count({.train = {"tokens.bin"}, .format = "tokens", .seq_len = 10}) == 2);
  for (const char* path : {"bad.safetensors", "short.safetensors", "flat.safetensors", "tokens.bin"}) {
    CAPTURE(path);
    CHECK_FALSE(count({.train = {path}}));
  }
  CHECK_FALSE(count({}));
}

TEST_CASE("less data than a global batch is refused with the numbers", "[launch][count_samples]") {
  const test::TempDir dir;
  config::JobConfig config;
  config.data.train = {dir.write("b.npy", npy("(5, 2)"))};
  config.batch = {.train_batch = 8, .micro_batch = 2, .accumulation = 1};
  test::expect_error(
      ExitCode::kBadInput,
      {"has 5 samples", "global batch of 8 (micro batch 2 x accumulation 1 x 4 data ranks)", "drop_last"},
      [&] { check_enough_samples(config, dir.path(), 4); });
  config.data.drop_last = false;
  CHECK_NOTHROW(check_enough_samples(config, dir.path(), 4));
  config.data.drop_last = true;
  config.batch.train_batch = 5;
  CHECK_NOTHROW(check_enough_samples(config, dir.path(), 4));
}
