#include <catch2/catch.hpp>
#include <filesystem>
#include <limits>

#include "runtime/telemetry/csv_monitor.hpp"
#include "runtime/telemetry/event_record.hpp"
#include "runtime/telemetry/monitor.hpp"
#include "runtime/telemetry/python_text.hpp"
#include "runtime/telemetry/tensorboard_monitor.hpp"
#include "support/expect_error.hpp"
#include "support/temp_dir.hpp"

using namespace dslaunch;
using namespace dslaunch::runtime;
using test::TempDir;

namespace {

const std::vector<ScalarEvent> kEvents{{"Train/Samples/train_loss", 2.5, 0},
                                       {"Train/Samples/lr", 1e-5, 4},
                                       {"Train/Samples/train_loss", 2, 4},
                                       {"a name", std::numeric_limits<double>::infinity(), 8}};

std::string bytes(std::initializer_list<int> values) {
  return {values.begin(), values.end()};
}

}  // namespace

TEST_CASE("numbers are written as Python's repr writes them", "[runtime][telemetry]") {
  CHECK(python_float(2) == "2.0");
  CHECK(python_float(0.1) == "0.1");
  CHECK(python_float(0.1 + 0.2) == "0.30000000000000004");
  CHECK(python_float(1e-5) == "1e-05");
  CHECK(python_float(0.0001) == "0.0001");
  CHECK(python_float(1e16) == "1e+16");
  CHECK(python_float(1e15) == "1000000000000000.0");
  CHECK(python_float(-3.5e-7) == "-3.5e-07");
  CHECK(python_float(std::numeric_limits<double>::quiet_NaN()) == "nan");
  CHECK(python_float(-std::numeric_limits<double>::infinity()) == "-inf");
}

TEST_CASE("message sizes are written as DeepSpeed writes them", "[runtime][telemetry]") {
  CHECK(python_size(0) == "0B");
  CHECK(python_size(1) == "1.0 B");
  CHECK(python_size(1023) == "1023.0 B");
  CHECK(python_size(1024) == "1.0 KB");
  CHECK(python_size(1536) == "1.5 KB");
  CHECK(python_size(711623475) == "678.66 MB");
  CHECK(python_size(size_t{5} << 40) == "5.0 TB");
}

TEST_CASE("a CSV file has one header a process, and rows that end in CRLF", "[runtime][telemetry]") {
  TempDir dir;
  const std::string folder = dir / "out/job";
  CsvMonitor(folder).write(kEvents);
  CHECK(test::read_file(folder + "/Train_Samples_train_loss.csv") == "step,train_loss\r\n0,2.5\r\n4,2.0\r\n");
  CHECK(test::read_file(folder + "/Train_Samples_lr.csv") == "step,lr\r\n4,1e-05\r\n");
  CHECK(test::read_file(folder + "/a_name.csv") == "step,a name\r\n8,inf\r\n");
  CsvMonitor again(folder);
  again.write(std::span(kEvents).subspan(1, 1));
  again.write(std::span(kEvents).subspan(1, 1));
  CHECK(test::read_file(folder + "/Train_Samples_lr.csv") == "step,lr\r\n4,1e-05\r\nstep,lr\r\n4,1e-05\r\n4,1e-05\r\n");
}

TEST_CASE("monitors that cannot write are errors with the path", "[runtime][telemetry]") {
  test::expect_error(ExitCode::kCannotCreate, {"/proc/nothing"}, [] { CsvMonitor("/proc/nothing/job"); });
  test::expect_error(ExitCode::kCannotCreate, {"/proc/nothing"}, [] { TensorBoardMonitor("/proc/nothing/job"); });
}

TEST_CASE("monitors without a path and without a job's name write into the working folder", "[runtime][telemetry]") {
  TempDir dir;
  const auto before = std::filesystem::current_path();
  std::filesystem::current_path(dir.path());
  config::JobConfig config;
  config.csv_monitor = {.enabled = true, .output_path = "", .job_name = ""};
  make_monitors(config, ".", /*resumes=*/false, "{}").front()->write(kEvents);
  std::filesystem::current_path(before);
  CHECK(test::read_file(dir / "Train_Samples_lr.csv") == "step,lr\r\n4,1e-05\r\n");
}

TEST_CASE("CRC-32C gives the values of RFC 3720", "[runtime][telemetry]") {
  CHECK(crc32c("") == 0);
  CHECK(crc32c("123456789") == 0xe3069283);
  CHECK(crc32c(std::string(32, '\0')) == 0x8a9136aa);
  CHECK(crc32c(std::string(32, '\xff')) == 0x62a8ab43);
}

TEST_CASE("an event is a record around a protocol buffer", "[runtime][telemetry]") {
  // Bytes from the rules of the encoding: tag = field << 3 | wire type, varints of 7 bits, lengths before texts.
  CHECK(encode_version_event(1.0) == bytes({0x09, 0, 0, 0, 0, 0, 0, 0xf0, 0x3f, 0x1a, 13}) + "brain.Event:2");
  CHECK(encode_scalar_event(2.0, 300, "ab", 1.5F) ==
        bytes({0x09, 0,    0,    0,    0, 0,   0,   0,    0x40, 0x10, 0xac, 0x02, 0x2a,
               0x0b, 0x0a, 0x09, 0x0a, 2, 'a', 'b', 0x15, 0,    0,    0xc0, 0x3f}));
  // A text is a tensor of one string (type 7, shape [1]), for the plugin "text".
  const std::string tensor = bytes({0x08, 7, 0x12, 4, 0x12, 2, 0x08, 1, 0x42, 2, 'h', 'i'});
  const std::string value = bytes({0x0a, 1, 'a', 0x42, 12}) + tensor + bytes({0x4a, 8, 0x0a, 6, 0x0a, 4}) + "text";
  CHECK(encode_text_event(2.0, 1, "a", "hi") ==
        bytes({0x09, 0, 0, 0, 0, 0, 0, 0, 0x40, 0x10, 1, 0x2a, 29, 0x0a, 27}) + value);
  const std::string record = event_record("abc");
  CHECK(record.size() == 8 + 4 + 3 + 4);
  CHECK(record.substr(0, 8) == bytes({3, 0, 0, 0, 0, 0, 0, 0}));
  CHECK(record.substr(12, 3) == "abc");
}

TEST_CASE("an event file begins with its version and grows by whole records", "[runtime][telemetry]") {
  TempDir dir;
  double now = 1'700'000'000;
  TensorBoardMonitor monitor(dir / "job", [&] { return now; });
  now += 1;
  monitor.write(std::span(kEvents).first(2));
  std::vector<std::string> files;
  for (const auto& entry : std::filesystem::directory_iterator(dir / "job")) files.push_back(entry.path());
  REQUIRE(files.size() == 1);
  CHECK_THAT(files[0], Catch::Matchers::Contains("/events.out.tfevents.1700000000."));
  CHECK(test::read_file(files[0]) == event_record(encode_version_event(1'700'000'000)) +
                                         event_record(encode_scalar_event(now, 0, "Train/Samples/train_loss", 2.5F)) +
                                         event_record(encode_scalar_event(now, 4, "Train/Samples/lr", 1e-5F)));
}
