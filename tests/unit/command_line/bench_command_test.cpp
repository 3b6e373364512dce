// `dslaunch bench io`: what it prints, what it asks fio for, and where it refuses to measure. `bench step`: what a
// whole measurement answers.
#include <algorithm>
#include <catch2/catch.hpp>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "apps/launcher/bench_report.hpp"
#include "apps/launcher/commands.hpp"
#include "apps/launcher/fio_rate.hpp"
#include "apps/worker/commands.hpp"
#include "base/log.hpp"
#include "base/scope_exit.hpp"
#include "config/load.hpp"
#include "support/captured_output.hpp"
#include "support/expect_error.hpp"
#include "support/job_files.hpp"
#include "support/mixed_net.hpp"
#include "support/set_env.hpp"
#include "support/temp_dir.hpp"

using namespace dslaunch;
using launcher::BenchIoReport;
using test::message_of;

namespace {

BenchIoReport some_report() {
  BenchIoReport report;
  report.directory = "/nvme";
  report.file_bytes = 2 << 20;
  report.uses_uring = report.uses_direct = true;
  report.sweep = {{{262144, 2, 1}, {1e9, 0.5e9}}, {{1048576, 32, 2}, {3e9, 2e9}}};
  report.best = {{1048576, 32, 2}, {3.1e9, 1.9e9}};
  report.fio = file_io::Rates{3.1e9, 2e9};
  report.num_cores = 2;
  report.copy_rate = 9.5e9;
  report.notes = {"a note"};
  return report;
}

}  // namespace

TEST_CASE("bench io ends in the block to paste, beside fio and memory", "[launcher][bench]") {
  CHECK(describe(some_report(), false) ==
        "/nvme: 2.1 MB in one file, io_uring, O_DIRECT\n"
        "a note\n"
        "\n"
        "block_size  queue_depth  intra_op_parallelism   read GB/s  write GB/s\n"
        "    262144            2                     1        1.00        0.50\n"
        "   1048576           32                     2        3.00        2.00\n"
        "\n"
        "                     read GB/s  write GB/s\n"
        "best, measured again      3.10        1.90\n"
        "fio, same setting         3.10        2.00   best / fio: 1.00, 0.95\n"
        "memory copy: 9.50 GB/s on 2 cores\n"
        "\n"
        "\"aio\": {\"block_size\":1048576,\"queue_depth\":32,\"intra_op_parallelism\":2}\n");
  auto without_fio = some_report();
  without_fio.fio.reset();
  without_fio.no_fio = "it is not installed";
  without_fio.uses_uring = without_fio.uses_direct = false;
  CHECK_THAT(describe(without_fio, false), Catch::Contains("in one file, threads, through the page cache\n") &&
                                               Catch::Contains("\nfio: it is not installed\n"));
}

TEST_CASE("bench io --json has every rate in bytes per second", "[launcher][bench]") {
  const auto document = nlohmann::json::parse(describe(some_report(), true));
  CHECK(document["sweep"][1] == nlohmann::json{{"block_size", 1048576},
                                               {"queue_depth", 32},
                                               {"intra_op_parallelism", 2},
                                               {"read_bytes_per_second", 3e9},
                                               {"write_bytes_per_second", 2e9}});
  CHECK(document["best"]["read_bytes_per_second"] == 3.1e9);
  CHECK(document["fio"] == nlohmann::json{{"read_bytes_per_second", 3.1e9}, {"write_bytes_per_second", 2e9}});
  CHECK(document["memory_copy_bytes_per_second"] == 9.5e9);
  CHECK(document["backend"] == "io_uring");
  // A config takes the block as it is.
  const test::TempDir dir;
  const nlohmann::json config{{"train_batch_size", 1}, {"aio", document["aio"]}};
  const auto loaded = config::load_file(dir.write("ds.json", config.dump()), {}, {.world_size = 1});
  REQUIRE(loaded.ok());
  CHECK(loaded.config.aio.queue_depth == 32);
}

TEST_CASE("fio gets the same setting and the same file", "[launcher][bench]") {
  launcher::FioJob job{.path = "/proc/1/fd/5", .bytes = 10 << 20, .setting = {1 << 20, 8, 2}, .seconds = 3};
  CHECK(fio_command(job) == std::vector<std::string>{"fio", "--name=dslaunch", "--filename=/proc/1/fd/5",
                                                     "--allow_file_create=0", "--size=5242880",
                                                     "--offset_increment=5242880", "--rw=read", "--bs=1048576",
                                                     "--direct=1", "--numjobs=2", "--runtime=3", "--time_based",
                                                     "--thread", "--group_reporting", "--output-format=json",
                                                     "--ioengine=io_uring", "--fixedbufs=1", "--iodepth=8"});
  job.uses_uring = false;
  job.is_write = true;
  const auto words = fio_command(job);
  CHECK(words.back() == "--ioengine=psync");
  CHECK(std::find(words.begin(), words.end(), "--numjobs=16") != words.end());
  CHECK(std::find(words.begin(), words.end(), "--rw=write") != words.end());
}

TEST_CASE("bench io names a directory that it cannot use", "[launcher][bench]") {
  const test::TempDir dir;
  const auto answer = [&](ExitCode code, const std::string& directory) {
    return message_of(code, dir.path(), [&] { launcher::dispatch({"bench", "io", "--dir", directory}); });
  };
  CHECK(answer(ExitCode::kNoInput, dir / "absent") == "--dir DIR/absent: No such file or directory");
  CHECK(answer(ExitCode::kNoInput, dir.write("file", "")) == "--dir DIR/file: it is not a directory");
}

TEST_CASE("bench step says of a file that is not a model what it is", "[launcher][bench]") {
  const test::TempDir dir;
  const std::string text = dir.write("text.pt", "I am a text\n");
  CHECK_THAT(message_of(ExitCode::kBadInput, dir.path(),
                        [&] {
                          launcher::dispatch({"bench", "step", text});
                        }),
             Catch::Contains("DIR/text.pt") && Catch::Contains("TorchScript") && !Catch::Contains("inputs"));
}

TEST_CASE("bench io measures a directory and leaves nothing in it", "[launcher][bench]") {
  const test::TempDir dir;
  const test::SetEnv no_fio("PATH", "/absent");  // whose measurements take whole seconds
  const test::CapturedOutput out(1);
  CHECK(launcher::dispatch({"bench", "io", "--dir", dir.path(), "--seconds", "1", "--json"}) == 0);
  const auto document = nlohmann::json::parse(out.text());
  CHECK(document["file_bytes"] >= 64 << 20);
  CHECK(document["best"]["write_bytes_per_second"] > 0);
  CHECK(document["fio"].is_null());
  CHECK(std::filesystem::is_empty(dir.path()));
}

TEST_CASE("bench step reports a model's steps, here beside eager TorchScript", "[worker][bench]") {
  const ScopeExit restore([level = log::level()] { log::set_level(level); });  // JobFiles lowers it
  const test::JobFiles job(test::make_mixed_net());
  const std::string config = job.folder.write("ds.json", job.config(test::json::object()).dump());
  const auto answer = [&](std::vector<std::string> words) {
    words.insert(words.begin(), {"bench", job.model, "--device", "cpu", "--steps", "2"});
    const test::CapturedOutput out(1);
    const int code = worker::dispatch(words);  // whose errors CHECK would take
    CHECK(code == 0);
    return out.text();
  };
  const auto document = nlohmann::json::parse(answer({"--config", config, "--against", "torch", "--json"}));
  CHECK(document["num_parameters"] == 125);
  CHECK(document["compute_dtype"] == "fp32");
  CHECK(document["micro_batch"] == test::JobFiles::kTrainBatch);
  CHECK(document["matrix_product_flops_per_second"] > 0);
  CHECK(document["dslaunch"]["step_ms"].size() == 2);
  CHECK(document["eager_torchscript"]["replaced_operators"].empty());
  CHECK_THAT(answer({"--config", config, "--set", "bf16.enabled=true"}),
             Catch::Contains("\nbf16, ZeRO 0, micro batch 12 x 1 accumulation step, on cpu\n") &&
                 Catch::Contains("\ncaptured    no: it needs a GPU\n"));
  job.folder.write("no_data.json", "{}");
  CHECK_THAT(message_of(ExitCode::kBadInput, "",
                        [&] {
                          answer({"--config", job.folder / "no_data.json"});
                        }),
             Catch::StartsWith("bench step needs data, and '") &&
                 Catch::Contains("does not record its inputs, as tools/export does: pass --data PATH, or set "
                                 "\"data\": {\"train\": PATH} in the config"));
}
