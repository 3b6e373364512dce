#include "launch/plan/input_files.hpp"

#include <catch2/catch.hpp>
#include <filesystem>

#include "support/expect_error.hpp"
#include "support/temp_dir.hpp"

using namespace dslaunch;
using launch::check_named_files;

namespace {

config::JobConfig trained_on(std::vector<std::string> train, std::vector<std::string> eval = {}) {
  config::JobConfig config;
  config.data.train = std::move(train);
  config.data.eval = std::move(eval);
  return config;
}

}  // namespace

TEST_CASE("existing data is accepted, however it is named", "[launch][input_files]") {
  const test::TempDir dir;
  dir.write("a.npz", "");
  dir.write("odd[1].npz", "");
  dir.write("text_document.bin", "");
  dir.write("text_document.idx", "");
  for (const std::string name : {"a.npz", "*.npz", "odd[1].npz", "text_document", "text_document.idx"}) {
    INFO(name);
    CHECK_NOTHROW(check_named_files(trained_on({name}, {dir / name}), dir.path()));
  }
  CHECK_NOTHROW(check_named_files(trained_on({}), dir.path()));  // synthetic
}

TEST_CASE("files of metrics are looked for before the ranks start", "[launch][input_files]") {
  const test::TempDir dir;
  auto config = trained_on({});
  config.train.metrics = {{"accuracy", ""}};
  CHECK_NOTHROW(check_named_files(config, dir.path()));
  config.train.metrics.push_back({"f1", "metric.pt"});
  test::expect_error(ExitCode::kNoInput, {dir / "metric.pt"}, [&] { check_named_files(config, dir.path()); });
  dir.write("metric.pt", "no archive");
  test::expect_error(ExitCode::kBadInput, {dir / "metric.pt", "not TorchScript"},
                     [&] { check_named_files(config, dir.path()); });
}

TEST_CASE("indices of samples' metrics are looked for before the ranks start", "[launch][input_files]") {
  const test::TempDir dir;
  auto config = trained_on({});
  config.data_efficiency.metrics.push_back(
      {.name = "length", .index_to_sample_path = "a", .index_to_metric_path = "b"});
  config.data_efficiency.metrics.push_back({.name = "other", .is_single_cluster = true});
  for (const char* name : {"a.idx", "a.bin", "b.idx", "b.bin"}) {
    test::expect_error(ExitCode::kNoInput, {dir / name}, [&] { check_named_files(config, dir.path()); });
    dir.write(name, "");
  }
  CHECK_NOTHROW(check_named_files(config, dir.path()));
  config.data_efficiency.dynamic_batching.emplace().metrics_path = "m";
  test::expect_error(ExitCode::kNoInput, {dir / "m/seqlen/seqlen_sample_to_metric.idx"},
                     [&] { check_named_files(config, dir.path()); });
}

TEST_CASE("a file of prompts is looked for before the ranks start", "[launch][input_files]") {
  const test::TempDir dir;
  auto config = trained_on({});
  config.train.samples.emplace().prompts_file = "p.txt";
  test::expect_error(ExitCode::kNoInput, {"file of prompts", dir / "p.txt"},
                     [&] { check_named_files(config, dir.path()); });
  dir.write("p.txt", "Once");
  CHECK_NOTHROW(check_named_files(config, dir.path()));
}

TEST_CASE("the ranks' directory is not a pattern, whatever its name", "[launch][input_files]") {
  const test::TempDir dir;
  const std::string cwd = dir / "run[1]*\\";
  std::filesystem::create_directory(cwd);
  for (const char* name : {"a.npz", "text_document.bin", "text_document.idx"}) test::write_file(cwd + "/" + name, "");
  for (const std::string name : {"a.npz", "*.npz", "[a-z].npz", "text_document"}) {
    INFO(name);
    CHECK_NOTHROW(check_named_files(trained_on({name}), cwd));
  }
  test::expect_error(ExitCode::kNoInput, {cwd + "/b*.npz"}, [&] { check_named_files(trained_on({"b*.npz"}), cwd); });
}

TEST_CASE("missing data is refused, relative to the ranks' directory", "[launch][input_files]") {
  const test::TempDir dir;
  dir.write("a.npz", "");
  dir.write("half.idx", "");
  for (const std::string name : {"b.npz", "b*.npz", "half", "."}) {
    INFO(name);
    test::expect_error(ExitCode::kNoInput, {dir / name}, [&] {
      check_named_files(trained_on({"a.npz", name}), dir.path());
    });
    test::expect_error(ExitCode::kNoInput, {dir / name},
                       [&] { check_named_files(trained_on({"a.npz"}, {name}), dir.path()); });
  }
}

TEST_CASE("Megatron data needs both of its files", "[launch][input_files]") {
  const test::TempDir dir;
  for (const char* name : {"text.bin", "text.idx", "half.idx", "other.bin"}) dir.write(name, "");
  auto config = trained_on({});
  config.data.format = "megatron";
  for (const char* name : {"text", "text.bin", "text.idx", "tex*"}) {
    INFO(name);
    config.data.train = {name};
    CHECK_NOTHROW(check_named_files(config, dir.path()));
  }
  for (const auto& [name, missing] : {std::pair{"half", "half.bin"},
                                      {"half.idx", "half.bin"},
                                      {"other.bin", "other.idx"},
                                      {"nowhere", "nowhere.idx"}}) {
    INFO(name);
    config.data.train = {name};
    test::expect_error(ExitCode::kNoInput, {dir / missing}, [&] { check_named_files(config, dir.path()); });
  }
}

TEST_CASE("a named loss is not a file", "[launch][input_files]") {
  const test::TempDir dir;
  config::JobConfig config;
  for (const char* name : {"", "mse", "cross_entropy"}) {
    config.loss = name;
    CHECK_NOTHROW(check_named_files(config, dir.path()));
  }
  config.loss = "huber.pt";
  test::expect_error(ExitCode::kNoInput, {"huber.pt", "model"}, [&] { check_named_files(config, dir.path()); });
}
