#include "runtime/data/npy_format.hpp"

#include <charconv>
#include <cstring>
#include <optional>
#include <string_view>

#include "base/error.hpp"
#include "base/format.hpp"
#include "runtime/state/dtype_names.hpp"
#include "runtime/state/tensor_extent.hpp"

namespace dslaunch::runtime {
namespace {

constexpr std::string_view kMagic("\x93NUMPY", 6);

// Kind and size.
constexpr DtypeName kDtypes[] = {{"f2", at::kHalf},   {"f4", at::kFloat},  {"f8", at::kDouble}, {"i1", at::kChar},
                                 {"i2", at::kShort},  {"i4", at::kInt},    {"i8", at::kLong},   {"u1", at::kByte},
                                 {"u2", at::kUInt16}, {"u4", at::kUInt32}, {"u8", at::kUInt64}, {"b1", at::kBool}};

class Parser {
 public:
  Parser(std::span<const uint8_t> bytes, uint64_t num_bytes, const std::string& subject)
      : bytes_(bytes), num_bytes_(num_bytes), subject_(subject) {}

  NpyHeader read() {
    const std::string_view dict = header_text();
    NpyHeader header;
    header.data_begin = data_begin_;
    header.dtype = read_dtype(value_of(dict, "descr"));
    header.shape = read_shape(value_of(dict, "shape"));
    const std::string_view order = value_of(dict, "fortran_order");
    if (order.substr(0, 4) == "True" && header.shape.size() > 1) {
      refuse("is stored column by column (fortran_order); save numpy.ascontiguousarray(array) instead");
    }
    require_elements(header);
    return header;
  }

 private:
  [[noreturn]] void refuse(const std::string& what) const {
    throw UserError(ExitCode::kBadInput, fmt::format("{} {}", subject_, what));
  }

  std::string_view header_text() {
    if (!looks_like_npy(bytes_)) refuse("is not a .npy array (its first bytes are not NumPy's)");
    if (bytes_.size() < 10) refuse(fmt::format("is truncated: {} bytes", bytes_.size()));
    const int version = bytes_[6];
    if (version < 1 || version > 3) refuse(fmt::format("has the unknown .npy version {}", version));
    size_t length = 0, begin = 0;
    if (version == 1) {
      begin = 10;
      length = bytes_[8] | bytes_[9] << 8;
    } else {
      if (bytes_.size() < 12) refuse(fmt::format("is truncated: {} bytes", bytes_.size()));
      begin = 12;
      length = bytes_[8] | bytes_[9] << 8 | bytes_[10] << 16 | static_cast<size_t>(bytes_[11]) << 24;
    }
    if (length > bytes_.size() - begin) {
      refuse(fmt::format("is truncated: its header claims {} bytes, {} follow", length, bytes_.size() - begin));
    }
    data_begin_ = begin + length;
    return {reinterpret_cast<const char*>(bytes_.data()) + begin, length};
  }

  // The text after "'key':", without leading blanks.
  std::string_view value_of(std::string_view dict, std::string_view key) const {
    for (const char quote : {'\'', '"'}) {
      const std::string quoted = quote + std::string(key) + quote;
      size_t at = dict.find(quoted);
      if (at == std::string_view::npos) continue;
      at = dict.find_first_not_of(" :", at + quoted.size());
      if (at != std::string_view::npos) return dict.substr(at);
    }
    refuse(fmt::format("has a damaged .npy header: no '{}'", key));
  }

  at::ScalarType read_dtype(std::string_view text) const {
    if (text.empty() || (text[0] != '\'' && text[0] != '"')) {
      refuse("is a structured array; save each field as a separate array");
    }
    const size_t end = text.find(text[0], 1);
    if (end == std::string_view::npos) refuse("has a damaged .npy header: descr does not end");
    const std::string_view descr = text.substr(1, end - 1);
    if (descr.size() < 2) refuse(fmt::format("has the unknown dtype '{}'", descr));
    if (descr[0] == '>' && descr.substr(1) != "u1" && descr.substr(1) != "i1") {
      refuse(fmt::format("is big-endian ('{}'); save array.astype(array.dtype.newbyteorder('<'))", descr));
    }
    if (descr.find('O') != std::string_view::npos) refuse("has Python objects; save an array of numbers");
    const auto dtype = dtype_named(kDtypes, descr.substr(1));
    if (!dtype || std::string_view("<>|=").find(descr[0]) == std::string_view::npos) {
      refuse(fmt::format("has the unsupported dtype '{}'; use real numbers or booleans", descr));
    }
    return *dtype;
  }

  std::vector<int64_t> read_shape(std::string_view text) const {
    const size_t end = text.find(')');
    if (text.empty() || text[0] != '(' || end == std::string_view::npos) refuse("has a damaged .npy header: shape");
    std::vector<int64_t> shape;
    const char* next = text.data() + 1;
    const char* const last = text.data() + end;
    while (next < last) {
      if (*next == ' ' || *next == ',') {
        ++next;
        continue;
      }
      int64_t size = 0;
      const auto [rest, error] = std::from_chars(next, last, size);
      if (error != std::errc() || size < 0) refuse("has a damaged .npy header: shape");
      shape.push_back(size);
      next = rest;
      if (next < last && *next == 'L') ++next;  // Python 2 wrote long integers like that
    }
    return shape;
  }

  void require_elements(const NpyHeader& header) const {
    const auto expected = num_bytes_of(header.shape, header.dtype);
    if (!expected) refuse("has a shape that overflows 64 bits");
    const uint64_t present = num_bytes_ - header.data_begin;
    if (static_cast<uint64_t>(*expected) > present) {
      refuse(fmt::format("is truncated: its shape ({}) needs {} bytes, but it has {}", fmt::join(header.shape, ", "),
                         *expected, present));
    }
  }

  const std::span<const uint8_t> bytes_;
  const uint64_t num_bytes_;
  const std::string& subject_;
  size_t data_begin_ = 0;
};

}  // namespace

bool looks_like_npy(std::span<const uint8_t> bytes) {
  return bytes.size() >= kMagic.size() && std::memcmp(bytes.data(), kMagic.data(), kMagic.size()) == 0;
}

NpyHeader read_npy_header(std::span<const uint8_t> bytes, uint64_t num_bytes, const std::string& subject) {
  return Parser(bytes, num_bytes, subject).read();
}

}  // namespace dslaunch::runtime
