#include "runtime/data/megatron_file.hpp"

#include <sys/stat.h>

#include <cstring>
#include <string_view>

#include "base/error.hpp"
#include "base/format.hpp"
#include "runtime/data/row_conversion.hpp"
#include "runtime/state/mapped_file.hpp"

namespace dslaunch::runtime {
namespace {

constexpr char kDataFile[] = "data file";
constexpr std::string_view kMagic("MMIDIDX\0\0", 9);
constexpr std::string_view kOldMagic("TNTIDX\0\0", 8);

[[noreturn]] void refuse(const std::string& path, const std::string& what) {
  throw UserError(ExitCode::kBadInput, fmt::format("{} '{}' {}", kDataFile, path, what));
}

bool is_file(const std::string& path) {
  struct stat status {};
  return ::stat(path.c_str(), &status) == 0 && S_ISREG(status.st_mode);
}

// The parts of an index, checked to lie inside the file; elements may be unaligned.
class Index {
 public:
  explicit Index(const std::string& path) : file_(MappedFile::open(path, kDataFile)) {
    constexpr size_t kHeader = 9 + 8 + 1 + 8 + 8;
    const std::string_view bytes(reinterpret_cast<const char*>(file_->data()), file_->size());
    if (bytes.starts_with(kOldMagic)) {
      refuse(path, "is an index of the old form (TNTIDX): preprocess the text again with --dataset-impl mmap");
    }
    if (!bytes.starts_with(kMagic)) refuse(path, "is not an index of Megatron: it does not begin with MMIDIDX");
    if (bytes.size() < kHeader) refuse(path, fmt::format("is truncated: {} bytes", bytes.size()));
    if (const auto version = at<uint64_t>(9); version != 1) {
      refuse(path, fmt::format("has version {}; only version 1 is supported", version));
    }
    type_code_ = at<uint8_t>(17);
    const auto sequences = at<uint64_t>(18), documents = at<uint64_t>(26);
    const uint64_t left = bytes.size() - kHeader;
    if (sequences > left / 12 || documents > (left - sequences * 12) / 8) {
      refuse(path, fmt::format("is truncated: {} bytes are too few for its {} sequences and {} document entries",
                               bytes.size(), sequences, documents));
    }
    num_sequences_ = static_cast<size_t>(sequences);
    lengths_ = kHeader;
    offsets_ = kHeader + 4 * num_sequences_;
  }

  int type_code() const { return type_code_; }
  size_t num_sequences() const { return num_sequences_; }
  int64_t length(size_t sequence) const { return at<int32_t>(lengths_ + 4 * sequence); }  // tokens
  int64_t offset(size_t sequence) const { return at<int64_t>(offsets_ + 8 * sequence); }  // bytes

 private:
  template <class T>
  T at(size_t offset) const {
    T value;
    std::memcpy(&value, file_->data() + offset, sizeof value);
    return value;
  }

  std::shared_ptr<const MappedFile> file_;
  int type_code_ = 0;
  size_t num_sequences_ = 0, lengths_ = 0, offsets_ = 0;
};

// Whether all sequences would lie inside the file with tokens of 8 bytes. With tokens of 2 bytes the last one does not.
bool may_have_eight_bytes(const Index& index, int64_t size) {
  for (size_t i = 0; i < index.num_sequences(); ++i) {
    if (index.offset(i) < 0 || index.length(i) > (size - index.offset(i)) / 8) return false;
  }
  return true;
}

// Megatron-LM and DeepSpeed agree on codes 1 to 5. Megatron-LM's 6 and 7 are floating point and its 8 is uint16;
// DeepSpeed's are uint16, uint32 and uint64. Tokens are not floating-point numbers, and the length of the file
// distinguishes 2 bytes from 8.
at::ScalarType token_type(const std::string& path, int code, bool has_two_bytes) {
  switch (code) {
    case 1:
      return at::kByte;
    case 2:
      return at::kChar;
    case 3:
      return at::kShort;
    case 4:
      return at::kInt;
    case 5:
      return at::kLong;
    case 6:
      if (has_two_bytes) return at::kUInt16;
      break;
    case 7:
      return at::kUInt32;
    case 8:
      return has_two_bytes ? at::kUInt16 : at::kLong;
    default:
      break;
  }
  refuse(path, fmt::format("has the element type {}, which is not a type of tokens", code));
}

}  // namespace

std::string megatron_prefix(const std::string& path) {
  for (const std::string_view ending : {".bin", ".idx"}) {
    if (path.ends_with(ending)) return path.substr(0, path.size() - ending.size());
  }
  return path;
}

bool is_megatron_data(const std::string& path) {
  const std::string prefix = megatron_prefix(path);
  if (!is_file(prefix + ".bin") || !is_file(prefix + ".idx")) return false;
  const auto index = MappedFile::open(prefix + ".idx", kDataFile);
  return std::string_view(reinterpret_cast<const char*>(index->data()), index->size()).starts_with(kMagic);
}

std::vector<FileArray> read_megatron_tokens(const std::string& path) {
  const std::string prefix = megatron_prefix(path), index_path = prefix + ".idx", tokens_path = prefix + ".bin";
  const Index index(index_path);
  const auto tokens = MappedFile::open(tokens_path, kDataFile);
  const auto size = static_cast<int64_t>(tokens->size());
  const at::ScalarType type = token_type(index_path, index.type_code(), !may_have_eight_bytes(index, size));
  const auto width = static_cast<int64_t>(c10::elementSize(type));
  std::vector<FileArray> ranges;
  int64_t end = -1;  // end of the current range, in bytes
  for (size_t i = 0; i < index.num_sequences(); ++i) {
    const int64_t length = index.length(i), offset = index.offset(i);
    if (length < 0 || offset < 0 || offset > size || length > (size - offset) / width) {
      refuse(tokens_path, fmt::format("has {} bytes, but '{}' has sequence {} at byte {} with {} tokens of {} bytes. "
                                      "Do the two files belong together?",
                                      size, index_path, i, offset, length, width));
    }
    if (offset != end) {
      ranges.push_back({"tokens", type, {0}, tokens->data() + offset, tokens, tokens_path});
      end = offset;
    }
    ranges.back().shape[0] += length;
    end += length * width;
  }
  if (ranges.empty()) refuse(index_path, "has no sequence");
  return ranges;
}

IndexRows read_index_rows(const std::string& path) {
  IndexRows rows;
  for (const FileArray& range : read_megatron_tokens(path)) {
    const auto begin = static_cast<std::ptrdiff_t>(rows.values.size());
    rows.values.resize(rows.values.size() + static_cast<size_t>(range.shape[0]));
    int64_t* out = rows.values.data() + begin;
    if (range.dtype == at::kLong) {
      std::memcpy(out, range.data, static_cast<size_t>(range.shape[0]) * sizeof *out);
    } else {
      convert_row(range.data, range.dtype, out, at::kLong, range.shape[0]);
    }
  }
  const Index index(megatron_prefix(path) + ".idx");
  size_t end = 0;
  for (size_t i = 0; i < index.num_sequences(); ++i) {
    rows.ends.push_back(end += static_cast<size_t>(index.length(i)));
  }
  return rows;
}

}  // namespace dslaunch::runtime
