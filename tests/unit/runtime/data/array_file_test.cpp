#include "runtime/data/array_file.hpp"

#include <catch2/catch.hpp>
#include <cstring>

#include "base/bytes.hpp"
#include "numpy_samples.hpp"
#include "support/expect_error.hpp"
#include "support/temp_dir.hpp"

using namespace dslaunch;
using namespace dslaunch::runtime;
using test::expect_error;
using test::TempDir;

namespace {

std::string from_hex_text(const char* text) {
  const auto bytes = *from_hex(text);
  return {bytes.begin(), bytes.end()};
}

template <class T>
std::vector<T> values_of(const FileArray& array, size_t count) {
  std::vector<T> values(count);
  std::memcpy(values.data(), array.data, count * sizeof(T));
  return values;
}

std::string npy(const std::string& dict, const std::string& data) {
  std::string bytes("\x93NUMPY\x01\x00", 8);
  bytes += static_cast<char>(dict.size());
  bytes += '\0';
  bytes.append(dict).append(data);
  return bytes;
}

void expect_refused(FileFormat format, const std::string& content, const std::vector<std::string>& parts) {
  TempDir dir;
  test::write_file(dir / "bad.bin", content);
  std::vector<std::string> all = parts;
  all.push_back("bad.bin");
  expect_error(ExitCode::kBadInput, all, [&] { read_arrays(dir / "bad.bin", format); });
}

}  // namespace

TEST_CASE("what numpy saved is read", "[runtime][data][array_file]") {
  TempDir dir;
  test::write_file(dir / "x.npy", from_hex_text(kNpyX));
  const auto arrays = read_arrays(dir / "x.npy", FileFormat::kNpy);
  REQUIRE(arrays.size() == 1);
  CHECK(arrays[0].name == "x");
  CHECK(arrays[0].dtype == at::kFloat);
  CHECK(arrays[0].shape == std::vector<int64_t>{3, 2});
  CHECK(values_of<float>(arrays[0], 6) == std::vector<float>{0, 1, 2, 3, 4, 5});
}

TEST_CASE("archives of numpy are read, stored and compressed", "[runtime][data][array_file]") {
  TempDir dir;
  const bool compressed = GENERATE(false, true);
  test::write_file(dir / "d.npz", from_hex_text(compressed ? kNpzDeflated : kNpzStored));
  auto arrays = read_arrays(dir / "d.npz", FileFormat::kNpz);
  REQUIRE(arrays.size() == 2);
  CHECK((arrays[0].data == nullptr) == compressed);  // nothing is unpacked for arrays that nobody reads
  for (auto& array : arrays) prepare(array);
  CHECK(arrays[0].name == "x");
  CHECK(values_of<float>(arrays[0], 6) == std::vector<float>{0, 1, 2, 3, 4, 5});
  CHECK(arrays[1].name == "y");
  CHECK(arrays[1].shape == std::vector<int64_t>{3});
  CHECK(values_of<int64_t>(arrays[1], 3) == std::vector<int64_t>{7, -100, 9});
}

TEST_CASE("a flipped bit in the values of an archive is noticed, as NumPy notices it", "[runtime][data][array_file]") {
  TempDir dir;
  for (const char* text : {kNpzStored, kNpzDeflated}) {
    std::string content = from_hex_text(text);
    for (size_t at = 0; at < content.size(); ++at) {
      content[at] = static_cast<char>(content[at] ^ 4);
      test::write_file(dir / "x.npz", content);
      content[at] = static_cast<char>(content[at] ^ 4);
      try {
        auto arrays = read_arrays(dir / "x.npz", FileFormat::kNpz);
        for (auto& array : arrays) prepare(array);
        if (arrays.size() != 2) continue;
        CHECK(values_of<float>(arrays[0], 6) == std::vector<float>{0, 1, 2, 3, 4, 5});
        CHECK(values_of<int64_t>(arrays[1], 3) == std::vector<int64_t>{7, -100, 9});
      } catch (const UserError& error) {
        CHECK(error.code() == ExitCode::kBadInput);
      }
    }
  }
}

TEST_CASE("arrays that no tensor can hold are refused with the way out", "[runtime][data][array_file]") {
  expect_refused(FileFormat::kNpy, from_hex_text(kNpyFortran), {"column by column", "ascontiguousarray"});
  expect_refused(FileFormat::kNpy, from_hex_text(kNpyStructured), {"structured"});
  expect_refused(FileFormat::kNpy, from_hex_text(kNpyBigEndian), {"big-endian", ">f4"});
  expect_refused(FileFormat::kNpy, npy("{'descr': '|O', 'fortran_order': False, 'shape': (2,)}", ""),
                 {"Python objects"});
  expect_refused(FileFormat::kNpy, npy("{'descr': '<U3', 'fortran_order': False, 'shape': (2,)}", ""), {"'<U3'"});
  expect_refused(FileFormat::kNpy, npy("{'descr': '<f4', 'fortran_order': False, 'shape': (2,)}", "1234"),
                 {"truncated", "needs 8 bytes, but it has 4"});
  expect_refused(FileFormat::kNpy, npy("{'descr': '<f4', 'fortran_order': False}", ""), {"no 'shape'"});
  expect_refused(FileFormat::kNpy, npy("{'descr': '<f4', 'fortran_order': False, 'shape': (-2,)}", ""), {"shape"});
  expect_refused(FileFormat::kNpy,
                 npy("{'descr': '<f4', 'fortran_order': False, 'shape': (4611686018427387904, 4)}", ""), {"overflows"});
  expect_refused(FileFormat::kNpy, "text", {"not a .npy"});
}

TEST_CASE("no cut and no damaged byte of an archive is a crash", "[runtime][data][array_file]") {
  TempDir dir;
  for (const char* text : {kNpzStored, kNpzDeflated}) {
    const std::string good = from_hex_text(text);
    auto try_content = [&](const std::string& content) {
      test::write_file(dir / "x.npz", content);
      try {
        for (auto& array : read_arrays(dir / "x.npz", FileFormat::kNpz)) prepare(array);
      } catch (const UserError& error) {
        CHECK(error.code() == ExitCode::kBadInput);
      }
    };
    for (size_t size = 0; size < good.size(); size += 7) {
      expect_refused(FileFormat::kNpz, good.substr(0, size), {});
    }
    for (size_t at = 0; at < good.size(); ++at) {
      std::string bad = good;
      bad[at] = static_cast<char>(~bad[at]);
      try_content(bad);
    }
  }
}

TEST_CASE("the format is told from the name or the first bytes", "[runtime][data][array_file]") {
  TempDir dir;
  test::write_file(dir / "a.safetensors", "");
  test::write_file(dir / "b.npz", "");
  test::write_file(dir / "c", from_hex_text(kNpyX));
  test::write_file(dir / "d", from_hex_text(kNpzStored));
  test::write_file(dir / "text.txt", "Call me Ishmael.");
  CHECK(file_format(dir / "a.safetensors", "auto", false) == FileFormat::kSafetensors);
  CHECK(file_format(dir / "b.npz", "auto", true) == FileFormat::kNpz);
  CHECK(file_format(dir / "c", "auto", false) == FileFormat::kNpy);
  CHECK(file_format(dir / "c", "auto", true) == FileFormat::kTokens);
  CHECK(file_format(dir / "d", "auto", false) == FileFormat::kNpz);
  CHECK(file_format(dir / "text.txt", "auto", true) == FileFormat::kTokens);
  CHECK(file_format(dir / "text.txt", "npy", true) == FileFormat::kNpy);
  expect_error(ExitCode::kBadInput, {"text.txt", "unknown format", "tools/tokenize"},
               [&] { file_format(dir / "text.txt", "auto", false); });
  expect_error(ExitCode::kBadInput, {"'parquet'", "safetensors"}, [&] { file_format(dir / "c", "parquet", false); });
  expect_error(ExitCode::kNoInput, {"nowhere"}, [&] { file_format(dir / "nowhere", "auto", false); });
}
