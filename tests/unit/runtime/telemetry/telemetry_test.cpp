#include <catch2/catch.hpp>
#include <cmath>
#include <filesystem>
#include <limits>
#include <nlohmann/json.hpp>

#include "base/quantity.hpp"
#include "runtime/telemetry/host_memory.hpp"
#include "runtime/telemetry/metrics_file.hpp"
#include "runtime/telemetry/step_metrics.hpp"
#include "support/expect_error.hpp"
#include "support/temp_dir.hpp"

using namespace dslaunch;
using namespace dslaunch::runtime;
using test::TempDir;

namespace {

StepMetrics example(int64_t step) {
  return {.step = step,
          .loss = 2.31449,
          .lr = 3e-4,
          .grad_norm = 0.8701,
          .loss_scale = 1,
          .step_ms = 142.2,
          .input_ms = 3.5,
          .samples_per_s = 56.3,
          .tokens_per_s = 7204.0,
          .host_mem_bytes = 1 << 20};
}

std::string lines(int64_t first, int64_t last) {
  std::string text;
  for (int64_t step = first; step <= last; ++step) text += to_json_line(example(step)) + "\n";
  return text;
}

}  // namespace

TEST_CASE("a metrics line has all keys, and null for what is unknown or not finite", "[runtime][telemetry]") {
  StepMetrics metrics = example(7);
  metrics.loss = std::numeric_limits<double>::quiet_NaN();
  metrics.grad_norm = std::numeric_limits<double>::infinity();
  metrics.overflow = true;
  const auto json = nlohmann::json::parse(to_json_line(metrics));
  CHECK(json.size() == 12);
  CHECK(json.at("step") == 7);
  CHECK(json.at("loss").is_null());
  CHECK(json.at("lr") == 3e-4);
  CHECK(json.at("grad_norm").is_null());
  CHECK(json.at("loss_scale") == 1.0);
  CHECK(json.at("overflow") == true);
  CHECK(json.at("step_ms") == 142.2);
  CHECK(json.at("input_ms") == 3.5);
  CHECK(json.at("samples_per_s") == 56.3);
  CHECK(json.at("tokens_per_s") == 7204.0);
  CHECK(json.at("gpu_mem_bytes").is_null());
  CHECK(json.at("host_mem_bytes") == 1048576);
  metrics.gpu_reserved_bytes = 3 << 20;
  CHECK(nlohmann::json::parse(to_json_line(metrics)).at("gpu_reserved_bytes") == 3 << 20);
}

TEST_CASE("a number survives its text exactly", "[runtime][telemetry]") {
  StepMetrics metrics = example(1);
  metrics.loss = 0.1 + 0.2;
  CHECK(nlohmann::json::parse(to_json_line(metrics)).at("loss").get<double>() == 0.1 + 0.2);
}

TEST_CASE("a resumed run continues after its step and drops what will come again", "[runtime][telemetry]") {
  TempDir dir;
  const std::string path = dir / "metrics.jsonl";
  SECTION("later lines and half a line are removed") {
    test::write_file(path, lines(1, 5) + "{\"step\": 6, \"lo");
    { MetricsFile(path, 3).write(example(4)); }
    CHECK(test::read_file(path) == lines(1, 4));
  }
  SECTION("half of the resumed step's own line is removed") {
    test::write_file(path, lines(1, 2) + to_json_line(example(3)));
    { MetricsFile(path, 3).write(example(4)); }
    CHECK(test::read_file(path) == lines(1, 2) + lines(4, 4));
  }
  SECTION("a fresh run starts an empty file") {
    test::write_file(path, lines(1, 5));
    { MetricsFile(path, 0).write(example(1)); }
    CHECK(test::read_file(path) == lines(1, 1));
  }
  SECTION("what follows a damaged line is removed with it") {
    const std::string second = to_json_line(example(2)), zeros(8, '\0');
    const std::string damaged =
        GENERATE_COPY(second.substr(0, 20) + second, second.substr(0, 20) + zeros + second.substr(28),
                      second.substr(0, second.size() - 1), "{\"step\":2x" + second.substr(9), std::string(), zeros);
    CAPTURE(damaged);
    test::write_file(path, lines(1, 1) + damaged + "\n" + lines(3, 3));
    { MetricsFile(path, 3).write(example(4)); }
    CHECK(test::read_file(path) == lines(1, 1) + lines(4, 4));
  }
  SECTION("a line with a wrong character stays just where a JSON parser takes it") {
    StepMetrics metrics = example(2);
    metrics.loss = 1.5e-21;
    const std::string good = to_json_line(metrics), tail = "\n" + lines(3, 3);
    int kept = 0, cut = 0;
    const auto check = [&](const std::string& changed) {
      std::filesystem::remove(path);  // a file that is emptied and written again, ext4 sends to the disk at once
      test::write_file(path, lines(1, 1) + changed + tail);
      { MetricsFile file(path, 3); }
      const auto json = nlohmann::json::parse(changed, nullptr, false);
      const bool is_sound = json.is_object() && json.contains("step") && json["step"].is_number_integer() &&
                            json["step"].get<int64_t>() <= 3;
      ++(is_sound ? kept : cut);
      INFO(changed);
      REQUIRE(test::read_file(path) == lines(1, 1) + (is_sound ? changed + tail : ""));
    };
    for (size_t at = 0; at < good.size(); ++at) {
      for (const char* other :
           {"", "\"", "\"\"}1", "{", "}", ",", ":", ".", "-", "0", "9e999", "e", "x", "\\", " ", "NaN"}) {
        check(good.substr(0, at) + other + good.substr(at + 1));
        check(good.substr(0, at) + other + good.substr(at));
      }
    }
    CHECK(kept > 500);
    CHECK(cut > 3000);
  }
  SECTION("lines that somebody has written in another way stay") {
    const std::string other = "{\"loss\": 2.5, \"step\": 2}\n{ \"step\" : 3, \"of\": {\"step\": 9}}\n";
    test::write_file(path, lines(1, 1) + other + "{\"loss\": 2.5, \"step\": 4}\n");
    { MetricsFile(path, 3).write(example(4)); }
    CHECK(test::read_file(path) == lines(1, 1) + other + lines(4, 4));
    CHECK(MetricsFile::has_step(path, 3));
    CHECK_FALSE(MetricsFile::has_step(path, 9));
  }
  SECTION("no file yet") {
    { MetricsFile(path, 3).write(example(4)); }
    CHECK(test::read_file(path) == lines(4, 4));
  }
}

TEST_CASE("an evaluation joins the line of its step, also when that is in the file already", "[runtime][telemetry]") {
  TempDir dir;
  const std::string path = dir / "metrics.jsonl";
  StepMetrics evaluated = example(3);
  evaluated.eval_loss = 0.25;
  {
    MetricsFile file(path, 0);
    for (int64_t step = 1; step <= 3; ++step) file.write(example(step));
    CHECK_FALSE(MetricsFile::has_evaluation(path, 3));
    file.rewrite_last(evaluated);
  }
  CHECK(test::read_file(path) == lines(1, 2) + to_json_line(evaluated) + "\n");
  CHECK(MetricsFile::has_evaluation(path, 3));
  CHECK_FALSE(MetricsFile::has_evaluation(path, 2));
  { MetricsFile(path, 3).write(EvaluationMetrics{2, 0.5, {}, 10}); }
  CHECK(MetricsFile::has_evaluation(path, 2));
}

TEST_CASE("values of evaluations are read back by step, the run's own first", "[runtime][telemetry]") {
  TempDir dir;
  const std::string path = dir / "metrics.jsonl";
  StepMetrics evaluated = example(2);
  evaluated.eval_loss = 0.5;
  evaluated.eval_metrics = {{"f1", 0.75}, {"accuracy", std::numeric_limits<double>::quiet_NaN()}};
  {
    MetricsFile file(path, 0);
    file.write(example(1));
    file.write(evaluated);
    file.write(EvaluationMetrics{4, 0.25, {{"f1", 1}}, 10});
    file.write(EvaluationMetrics{2, 7, {{"f1", 7}}, 10});  // of a run that only evaluated
  }
  CHECK_THAT(test::read_file(path), Catch::Contains(R"("eval_loss":0.5,"eval_f1":0.75,"eval_accuracy":null})"));
  CHECK_THAT(test::read_file(path), Catch::Contains(R"({"step":4,"eval_loss":0.25,"eval_f1":1.0,"eval_samples":10})"));
  const auto values = [&](const char* name, int64_t last) { return MetricsFile::evaluated_values(path, name, last); };
  CHECK(values("eval_loss", 9) == std::map<int64_t, double>{{2, 0.5}, {4, 0.25}});
  CHECK(values("eval_f1", 3) == std::map<int64_t, double>{{2, 0.75}});
  REQUIRE(values("eval_accuracy", 9).size() == 1);
  CHECK(std::isnan(values("eval_accuracy", 9).at(2)));
  CHECK(values("eval_none", 9).empty());
  // A name with digits does not end the file for a run that resumes.
  { MetricsFile(path, 3).write(example(3)); }
  CHECK(values("eval_f1", 9) == std::map<int64_t, double>{{2, 0.75}});
  CHECK(MetricsFile::has_step(path, 3));
}

TEST_CASE("metrics that were removed with their folder go on in a new file", "[runtime][telemetry]") {
  TempDir dir;
  const std::string folder = dir / "run", path = folder + "/metrics.jsonl";
  std::filesystem::create_directory(folder);
  StepMetrics evaluated = example(3);
  evaluated.eval_loss = 0.25;
  MetricsFile file(path, 0);
  file.write(example(1));
  std::filesystem::remove_all(folder);
  file.write(example(2));
  file.write(example(3));
  CHECK(test::read_file(path) == lines(2, 3));
  std::filesystem::remove(path);
  file.rewrite_last(evaluated);
  CHECK(test::read_file(path) == to_json_line(evaluated) + "\n");
}

TEST_CASE("metrics whose place is gone for good end no run", "[runtime][telemetry]") {
  TempDir dir;
  const std::string folder = dir / "run";
  std::filesystem::create_directory(folder);
  MetricsFile file(folder + "/metrics.jsonl", 0);
  file.write(example(1));
  std::filesystem::remove_all(folder);
  test::write_file(folder, "a file where the folder was");
  CHECK_NOTHROW(file.write(example(2)));
  CHECK_NOTHROW(file.rewrite_last(example(2)));
  CHECK(test::read_file(folder) == "a file where the folder was");
}

TEST_CASE("metrics that cannot be written are errors with the path", "[runtime][telemetry]") {
  test::expect_error(ExitCode::kCannotCreate, {"/proc/none/metrics.jsonl"},
                     [] { MetricsFile("/proc/none/metrics.jsonl", 0); });
  test::expect_error(ExitCode::kIoError, {"/dev/full", "No space left"},
                     [] { MetricsFile("/dev/full", 0).write(example(1)); });
}

TEST_CASE("a sample is shown on one line", "[runtime][telemetry]") {
  const std::string letters(47, 'a');
  CHECK(format_sample({{"one\ntwo", " th\xc3\xa9", {}, "end"}}) == "sample \"one two\" \u2192 \" th\u00e9\" (1 of 1)");
  CHECK(format_sample({{"\xc3\xa9" + letters, letters + "\xc3\xa9", {}, "end"}, {}}) ==
        "sample \"\u2026" + letters + "\" \u2192 \"" + letters + "\u2026\" (1 of 2)");
}

TEST_CASE("the progress line is short and aligned", "[runtime][telemetry]") {
  CHECK(format_progress(example(120), 200) ==
        "step 120/200  loss 2.3145  lr 3.0e-04  grad_norm 0.870  142 ms/step  7.2k tok/s");
  StepMetrics metrics = example(5);
  metrics.grad_norm.reset();
  metrics.tokens_per_s.reset();
  metrics.step_ms = 3.456;
  CHECK(format_progress(metrics, 200) == "step   5/200  loss 2.3145  lr 3.0e-04  3.46 ms/step  56 samples/s");
  metrics.overflow = true;
  metrics.loss_scale = 65536;
  CHECK_THAT(format_progress(metrics, 0), Catch::Matchers::StartsWith("step 5  ") &&
                                              Catch::Matchers::Contains("overflow (step skipped, loss scale 65536)"));
}

TEST_CASE("a loss is a few digits whatever its size", "[runtime][telemetry]") {
  CHECK(format_loss(2.31449) == "2.3145");
  CHECK(format_loss(-12.5) == "-12.5000");
  CHECK(format_loss(99999.99) == "99999.9900");
  CHECK(format_loss(1.9512e30) == "1.95e+30");
  CHECK(format_loss(-1.9512e30) == "-1.95e+30");
  CHECK(format_loss(4.2e-5) == "4.20e-05");
  CHECK(format_loss(0) == "0.0000");
  CHECK(format_loss(std::numeric_limits<double>::infinity()) == "inf");
  CHECK(format_loss(-std::numeric_limits<double>::quiet_NaN()) == "nan");
  CHECK(format_ms(-std::numeric_limits<double>::quiet_NaN()) == "nan");
  StepMetrics diverged = example(5);
  diverged.loss = diverged.eval_loss.emplace(1.95e30);
  CHECK_THAT(format_progress(diverged, 0),
             Catch::Matchers::Contains("loss 1.95e+30 ") && Catch::Matchers::EndsWith("eval_loss 1.95e+30"));
}

TEST_CASE("rates change their unit where four digits would be needed", "[runtime][telemetry]") {
  CHECK(format_rate(0) == "0.0");
  CHECK(format_rate(9.94) == "9.9");
  CHECK(format_rate(999.4) == "999");
  CHECK(format_rate(999.6) == "1.0k");
  CHECK(format_rate(7204) == "7.2k");
  CHECK(format_rate(123456) == "123k");
  CHECK(format_rate(1.35e6) == "1.4M");
  CHECK(format_rate(2e12) == "2000G");
}

TEST_CASE("memory is read from the process's status", "[runtime][telemetry]") {
  const HostMemory memory = parse_process_status(
      "Name:\tx\nVmHWM:\t    2048 kB\nVmRSS:\t    1024 kB\nRssAnon:\t     512 kB\nRssFile:\t     256 kB\nRssShmem:\t 4 "
      "kB\n");
  CHECK(memory.peak == 2048 * 1024);
  CHECK(memory.resident == 1024 * 1024);
  CHECK(memory.anonymous == 512 * 1024);
  CHECK(memory.file == 256 * 1024);
  CHECK(memory.shared == 4096);
  const auto own = read_host_memory();
  REQUIRE(own);
  CHECK(own->resident > 1 << 20);
  CHECK(own->anonymous + own->file + own->shared == own->resident);
}
