#include "launch/supervisor/run_metrics.hpp"

#include <catch2/catch.hpp>
#include <filesystem>
#include <fstream>

#include "support/temp_dir.hpp"

using namespace dslaunch;
using namespace dslaunch::launch;

TEST_CASE("the last recorded step is that of the last line", "[launch][run_metrics]") {
  const test::TempDir dir;
  const std::string run_dir = dir.path();
  FileThread reads;
  CHECK_FALSE(last_recorded_step(reads, run_dir));
  std::ofstream file(run_dir + "/metrics.jsonl");
  CHECK_FALSE(last_recorded_step(reads, run_dir));
  for (int step = 1; step <= 5000; ++step) file << R"({"step":)" << step << R"(,"loss":1.5})" << std::endl;
  CHECK(last_recorded_step(reads, run_dir) == 5000);
  CHECK(last_metrics_line(reads, run_dir) == R"({"step":5000,"loss":1.5})");
  file << R"({"step":50)" << std::flush;  // cut by a full disk
  CHECK_FALSE(last_recorded_step(reads, run_dir));
}

TEST_CASE("only the end of a huge file of metrics is read", "[launch][run_metrics]") {
  const test::TempDir dir;
  const std::string path = dir / "metrics.jsonl";
  std::ofstream(path) << R"({"step":1})" << std::endl;
  std::filesystem::resize_file(path, uintmax_t{1} << 40);  // no disk holds it: the file is sparse
  std::ofstream(path, std::ios::app) << std::endl << R"({"step":7})" << std::endl;
  FileThread reads;
  CHECK(last_recorded_step(reads, dir.path()) == 7);
}

TEST_CASE("an evaluation of an earlier checkpoint is not the run's last step", "[launch][run_metrics]") {
  const test::TempDir dir;
  const std::string training = R"({"step":40,"loss":1.5,"eval_loss":2})";
  const std::string evaluation = R"({"step":20,"eval_loss":2.5,"eval_samples":8})";
  FileThread reads;
  for (const std::string& lines : {training + "\n" + evaluation + "\n" + evaluation + "\n", training + "\n"}) {
    dir.write("metrics.jsonl", lines);
    CHECK(last_recorded_step(reads, dir.path()) == 40);
    CHECK(last_training_line(reads, dir.path()) == training);
  }
  dir.write("metrics.jsonl", evaluation + "\n");
  CHECK(last_training_line(reads, dir.path()).empty());
  CHECK(last_metrics_line(reads, dir.path()) == evaluation);
}
