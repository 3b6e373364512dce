#include "runtime/data/npy_format.hpp"

#include <catch2/catch.hpp>

#include "support/expect_error.hpp"

using namespace dslaunch;
using namespace dslaunch::runtime;
using test::message_of;

namespace {

// An array's file: the header of that version, then the elements.
std::string npy(int version, const std::string& dict, const std::string& elements) {
  std::string bytes = "\x93NUMPY" + std::string{static_cast<char>(version), '\0'};
  bytes += static_cast<char>(dict.size() & 0xff);
  bytes += static_cast<char>(dict.size() >> 8);
  if (version > 1) bytes += std::string(2, '\0');
  return bytes + dict + elements;
}

NpyHeader header_of(const std::string& bytes) {
  return read_npy_header({reinterpret_cast<const uint8_t*>(bytes.data()), bytes.size()}, "file 'x.npy'");
}

std::string dict_of(const std::string& descr, const std::string& shape, const std::string& order = "False") {
  return "{'descr': " + descr + ", 'fortran_order': " + order + ", 'shape': " + shape + ", }\n";
}

std::string refusal(const std::string& bytes) {
  return message_of(ExitCode::kBadInput, "", [&] { header_of(bytes); });
}

}  // namespace

TEST_CASE("every type of numbers that numpy writes has its own", "[runtime][data][npy_format]") {
  const std::pair<const char*, at::ScalarType> kTypes[] = {
      {"<f2", at::kHalf}, {"<f4", at::kFloat},  {"<f8", at::kDouble}, {"|i1", at::kChar},   {"<i2", at::kShort},
      {"<i4", at::kInt},  {"<i8", at::kLong},   {"|u1", at::kByte},   {"<u2", at::kUInt16}, {"<u4", at::kUInt32},
      {"=i8", at::kLong}, {"<u8", at::kUInt64}, {"|b1", at::kBool},   {">i1", at::kChar},   {">u1", at::kByte}};
  for (const auto& [descr, dtype] : kTypes) {
    INFO(descr);
    const auto header = header_of(npy(1, dict_of("'" + std::string(descr) + "'", "(2,)"), std::string(16, '\0')));
    CHECK(header.dtype == dtype);
    CHECK(header.shape == std::vector<int64_t>{2});
  }
}

TEST_CASE("the headers of all versions are read, and of old ones", "[runtime][data][npy_format]") {
  const std::string dict = dict_of("'<f4'", "(2, 3)");
  for (const int version : {1, 2, 3}) {
    const std::string bytes = npy(version, dict, std::string(24, '\0'));
    CHECK(header_of(bytes).data_begin == bytes.size() - 24);
    CHECK(header_of(bytes).shape == std::vector<int64_t>{2, 3});
  }
  CHECK(header_of(npy(1, dict_of("\"<f4\"", "(2L, 1L)"), std::string(8, '\0'))).shape == std::vector<int64_t>{2, 1});
  CHECK(header_of(npy(1, dict_of("'<f4'", "()"), std::string(4, '\0'))).shape.empty());
  CHECK(header_of(npy(1, dict_of("'<f4'", "(3,)", "True"), std::string(12, '\0'))).shape.size() == 1);
}

TEST_CASE("an array's file that is damaged is refused with what is wrong", "[runtime][data][npy_format]") {
  const std::string good = npy(1, dict_of("'<f4'", "(2,)"), std::string(8, '\0'));
  const std::string subject = "file 'x.npy' ";
  CHECK(refusal("text") == subject + "is not a .npy array (its first bytes are not NumPy's)");
  CHECK(refusal(good.substr(0, 9)) == subject + "is truncated: 9 bytes");
  CHECK(refusal(npy(2, "", "").substr(0, 11)) == subject + "is truncated: 11 bytes");
  CHECK(refusal(npy(4, "{}", "")) == subject + "has the unknown .npy version 4");
  CHECK(refusal(good.substr(0, 20)) == subject + "is truncated: its header claims 58 bytes, 10 follow");
  CHECK(refusal(good.substr(0, good.size() - 1)) ==
        subject + "is truncated: its shape (2) needs 8 bytes, but it has 7");
  CHECK(refusal(npy(1, "{'descr': '<f4', 'shape': (1,)}", "1234")) ==
        subject + "has a damaged .npy header: no 'fortran_order'");
  CHECK(refusal(npy(1, dict_of("'<f4", "(1,)"), "")).starts_with(subject + "has the un"));
  CHECK(refusal(npy(1, "{'shape': (1,), 'fortran_order': False, 'descr': '<f4", "")) ==
        subject + "has a damaged .npy header: descr does not end");
  CHECK(refusal(npy(1, dict_of("'f'", "(1,)"), "")) == subject + "has the unknown dtype 'f'");
  CHECK(refusal(npy(1, dict_of("'<c8'", "(1,)"), "")) ==
        subject + "has the unsupported dtype '<c8'; use real numbers or booleans");
  CHECK(refusal(npy(1, dict_of("'>f4'", "(1,)"), "")) ==
        subject + "is big-endian ('>f4'); save array.astype(array.dtype.newbyteorder('<'))");
  CHECK(refusal(npy(1, dict_of("'|O'", "(1,)"), "")) == subject + "has Python objects; save an array of numbers");
  CHECK(refusal(npy(1, dict_of("[('a', '<f4')]", "(1,)"), "")) ==
        subject + "is a structured array; save each field as a separate array");
  CHECK(refusal(npy(1, dict_of("'<f4'", "(1, 2)", "True"), "")) ==
        subject + "is stored column by column (fortran_order); save numpy.ascontiguousarray(array) instead");
  for (const char* shape : {"2", "(2", "(-1,)", "(x,)", "(99999999999999999999,)"}) {
    CHECK(refusal(npy(1, "{'descr': '<f4', 'fortran_order': False, 'shape': " + std::string(shape), "")) ==
          subject + "has a damaged .npy header: shape");
  }
  CHECK(refusal(npy(1, dict_of("'<f4'", "(4611686018427387904, 4)"), "")) ==
        subject + "has a shape that overflows 64 bits");
}
