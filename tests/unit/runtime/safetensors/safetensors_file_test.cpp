#include "runtime/state/safetensors_file.hpp"

#include <ATen/ops/arange.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/zeros.h>

#include <catch2/catch.hpp>
#include <cstring>
#include <ctime>
#include <nlohmann/json.hpp>

#include "runtime/state/safetensors_writer.hpp"
#include "support/expect_error.hpp"
#include "support/temp_dir.hpp"

using namespace dslaunch;
using namespace dslaunch::runtime;
using test::expect_error;
using test::TempDir;

namespace {

// The format by hand: length, header, data.
std::string file_of(const std::string& header, const std::string& data) {
  uint64_t length = header.size();
  std::string bytes(8, '\0');
  std::memcpy(bytes.data(), &length, 8);
  bytes.append(header).append(data);
  return bytes;
}

template <class T>
std::string bytes_of(std::vector<T> values) {
  return {reinterpret_cast<const char*>(values.data()), values.size() * sizeof(T)};
}

void expect_refused(const std::string& content, const std::vector<std::string>& parts) {
  TempDir dir;
  test::write_file(dir / "x.safetensors", content);
  std::vector<std::string> all = parts;
  all.push_back("x.safetensors");
  expect_error(ExitCode::kBadInput, all, [&] { SafetensorsFile file(dir / "x.safetensors"); });
}

}  // namespace

TEST_CASE("reading a header takes time in proportion to its length", "[runtime][safetensors]") {
  constexpr int kTensors = 100'000;  // over 20 s when each name cost a walk through all of them
  std::string header = "{";
  for (int i = 0; i < kTensors; ++i) {
    header += (i > 0 ? ",\"t" : "\"t") + std::to_string(i) + R"(":{"dtype":"U8","shape":[0],"data_offsets":[0,0]})";
  }
  TempDir dir;
  test::write_file(dir / "x.safetensors", file_of(header + "}", ""));
  const auto cpu_seconds = [] { return static_cast<double>(std::clock()) / CLOCKS_PER_SEC; };
  const double begin = cpu_seconds();
  CHECK(SafetensorsFile(dir / "x.safetensors").entries().size() == kTensors);
  CHECK(cpu_seconds() - begin < 10);
}

TEST_CASE("a file made by hand gives its tensors over the mapping", "[runtime][safetensors]") {
  TempDir dir;
  const std::string header =
      R"({"b":{"dtype":"I64","shape":[2],"data_offsets":[8,24]},"__metadata__":{"format":"pt"},)"
      R"("a":{"dtype":"F32","shape":[2,1],"data_offsets":[0,8]},"s":{"dtype":"BOOL","shape":[],"data_offsets":[24,25]}} )";
  test::write_file(dir / "x.safetensors",
                   file_of(header, bytes_of<float>({1.5f, -2.f}) + bytes_of<int64_t>({7, -8}) + std::string(1, 1)));
  at::Tensor a;
  {
    SafetensorsFile file(dir / "x.safetensors");
    REQUIRE(file.entries().size() == 3);
    CHECK(file.entries()[0].name == "a");
    CHECK(file.entries()[1].name == "b");
    CHECK(file.metadata().at("format") == "pt");
    CHECK(file.find("nothing") == nullptr);
    a = file.tensor(*file.find("a"));
    const at::Tensor b = file.tensor(*file.find("b"));
    CHECK(b[1].item<int64_t>() == -8);
    CHECK(file.tensor(*file.find("s")).item<bool>());
    CHECK(file.tensor(*file.find("s")).dim() == 0);
  }
  // The tensor holds the mapping after the file object is gone.
  CHECK(a.sizes() == at::IntArrayRef({2, 1}));
  CHECK(a[1][0].item<float>() == -2.f);
}

TEST_CASE("a tensor whose bytes are not aligned is copied, not misread", "[runtime][safetensors]") {
  TempDir dir;
  test::write_file(dir / "x", file_of(R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[1,5]}})",
                                      bytes_of<char>({'?'}).append(bytes_of<float>({3.25f}))));
  SafetensorsFile file(dir / "x");
  CHECK(file.tensor(file.entries()[0]).item<float>() == 3.25f);
}

TEST_CASE("every unsound file is refused with its reason", "[runtime][safetensors]") {
  auto entry = [](const std::string& dtype, const std::string& shape, const std::string& offsets) {
    return R"({"w":{"dtype":")" + dtype + R"(","shape":)" + shape + R"(,"data_offsets":)" + offsets + "}}";
  };
  const std::string eight(8, '\0');
  expect_refused("", {"0 bytes are too few"});
  expect_refused("abc", {"3 bytes are too few"});
  expect_refused(std::string("\xff\xff\xff\xff\xff\xff\xff\x7f", 8) + "{}", {"claims 9223372036854775807 bytes"});
  expect_refused(std::string("\x40\0\0\0\0\0\0\0", 8) + "{}", {"claims 64 bytes, but only 2 follow", "truncated"});
  expect_refused(file_of("{\"w\":", ""), {"not JSON"});
  expect_refused(file_of("[1]", ""), {"not a JSON object"});
  expect_refused(file_of(std::string(200000, '['), ""), {"nests deeper"});
  expect_refused(file_of(entry("F32", std::string(200000, '[') + std::string(200000, ']'), "[0,8]"), eight),
                 {"its header nests deeper"});
  expect_refused(file_of("{\"w\":3}", ""), {"'w' has no dtype"});
  expect_refused(file_of(entry("F32", "[2]", "[0,8]"), "1234"), {"'w' ends at byte 8", "has only 4", "truncated"});
  expect_refused(file_of(entry("F99", "[2]", "[0,8]"), eight), {"unknown dtype 'F99'"});
  expect_refused(file_of(entry("F32", "[3]", "[0,8]"), eight), {"needs 12 bytes, but data_offsets give 8"});
  expect_refused(file_of(entry("F32", "[-1]", "[0,8]"), eight), {"bad shape [-1]"});
  expect_refused(file_of(entry("F32", "2", "[0,8]"), eight), {"bad shape 2"});
  expect_refused(file_of(entry("F32", "[2]", "[8,0]"), eight), {"run backwards"});
  expect_refused(file_of(entry("F32", "[2]", "[0]"), eight), {"bad data_offsets"});
  expect_refused(file_of(entry("F32", "[2]", "[0,1.5]"), eight), {"bad data_offsets"});
  expect_refused(file_of(entry("F32", "[4611686018427387904,4]", "[0,8]"), eight), {"overflows"});
  expect_refused(file_of(entry("F32", "[0,4611686018427387904,4]", "[0,0]"), ""), {"overflows"});
  expect_refused(file_of(R"({"a":{"dtype":"U8","shape":[4],"data_offsets":[0,4]},)"
                         R"("b":{"dtype":"U8","shape":[4],"data_offsets":[3,7]}})",
                         eight),
                 {"'a' and 'b' overlap"});
  expect_refused(file_of(R"({"a":{"dtype":"U8","shape":[4],"data_offsets":[0,4]},)"
                         R"("a":{"dtype":"U8","shape":[4],"data_offsets":[4,8]}})",
                         eight),
                 {"'a' is listed 2 times"});
  expect_refused(file_of(entry("F32", "[2]", "[0,8]"), eight + "123"), {"3 bytes follow the last tensor"});
  expect_refused(file_of("{}", eight), {"8 bytes follow the last tensor"});
  expect_refused(file_of(R"({"__metadata__":{"k":1}})", ""), {"__metadata__ 'k' is not a string"});
}

TEST_CASE("any single damaged byte of a header is refused or read, never a crash", "[runtime][safetensors]") {
  TempDir dir;
  const std::string good =
      file_of(R"({"a":{"dtype":"F32","shape":[2,2],"data_offsets":[0,16]}})", std::string(16, 'x'));
  for (size_t at = 0; at + 16 < good.size(); ++at) {
    for (char replacement : {'\0', '9', '"', '\xff', '{'}) {
      std::string bad = good;
      bad[at] = replacement;
      test::write_file(dir / "x", bad);
      try {
        SafetensorsFile file(dir / "x");
        for (const auto& entry : file.entries()) (void)file.tensor(entry).clone();
      } catch (const UserError& error) {
        CHECK(error.code() == ExitCode::kBadInput);
      }
    }
  }
}

TEST_CASE("a missing file and a folder are named", "[runtime][safetensors]") {
  TempDir dir;
  expect_error(ExitCode::kNoInput, {"data file", "nowhere", "No such file"},
               [&] { SafetensorsFile file(dir / "nowhere", "data file"); });
  expect_error(ExitCode::kNoInput, {"is a directory"}, [&] { SafetensorsFile file(dir.path()); });
}

TEST_CASE("what the writer wrote is the format, aligned and without gaps", "[runtime][safetensors]") {
  TempDir dir;
  const std::string path = dir / "x.safetensors";
  const at::Tensor byte = at::ones({3}, at::kByte), wide = at::arange(2, at::kLong),
                   half = at::zeros({0, 5}, at::kBFloat16);
  std::string seen;
  SafetensorsWriter writer(
      path, {{"byte", at::kByte, {3}}, {"wide", at::kLong, {2}}, {"a \"b\"", at::kBFloat16, {0, 5}}}, {{"step", "5"}},
      [&](const void* data, size_t size) { seen.append(static_cast<const char*>(data), size); });
  REQUIRE(writer.order().size() == 3);
  for (const auto& tensor : writer.order()) {
    writer.write(tensor.name == "byte" ? byte : tensor.name == "wide" ? wide : half);
  }
  writer.finish(true);

  const std::string content = test::read_file(path);
  CHECK(seen == content);
  CHECK(writer.bytes_written() == content.size());
  uint64_t length = 0;
  std::memcpy(&length, content.data(), 8);
  CHECK(length % 8 == 0);
  const auto header = nlohmann::json::parse(content.substr(8, length));
  CHECK(header.at("__metadata__").at("step") == "5");
  CHECK(header.at("wide").at("data_offsets") == nlohmann::json({0, 16}));
  CHECK(header.at("wide").at("dtype") == "I64");
  CHECK(header.at("a \"b\"").at("shape") == nlohmann::json({0, 5}));
  CHECK(header.at("byte").at("data_offsets") == nlohmann::json({16, 19}));
  CHECK(content.size() == 8 + length + 19);

  SafetensorsFile file(path);
  CHECK(file.tensor(*file.find("wide")).equal(wide));
  CHECK(file.tensor(*file.find("byte")).equal(byte));
  CHECK(file.tensor(*file.find("a \"b\"")).equal(half));
}

TEST_CASE("a full disk is an I/O error that names the file", "[runtime][safetensors]") {
  expect_error(ExitCode::kIoError, {"/dev/full' (", "KiB to write, ", " free): No space left"}, [] {
    SafetensorsWriter writer("/dev/full", {{"a", at::kFloat, {2}}});
    writer.write(at::zeros({2}));
    writer.finish(false);
  });
  expect_error(ExitCode::kCannotCreate, {"/proc/none/x"}, [] { SafetensorsWriter writer("/proc/none/x", {}); });
}
