#include "runtime/state/safetensors_file.hpp"

#include <algorithm>
#include <cstring>
#include <nlohmann/json.hpp>

#include "base/error.hpp"
#include "base/format.hpp"
#include "base/json_depth.hpp"
#include "runtime/state/dtype_names.hpp"
#include "runtime/state/tensor_extent.hpp"

namespace dslaunch::runtime {
namespace {

constexpr DtypeName kDtypes[] = {
    {"F64", at::kDouble},
    {"F32", at::kFloat},
    {"F16", at::kHalf},
    {"BF16", at::kBFloat16},
    {"I64", at::kLong},
    {"I32", at::kInt},
    {"I16", at::kShort},
    {"I8", at::kChar},
    {"U64", at::kUInt64},
    {"U32", at::kUInt32},
    {"U16", at::kUInt16},
    {"U8", at::kByte},
    {"BOOL", at::kBool},
    {"F8_E4M3", at::kFloat8_e4m3fn},
    {"F8_E5M2", at::kFloat8_e5m2},
    {"C64", at::kComplexFloat},
};

using Json = nlohmann::json;

constexpr size_t kLengthBytes = 8;
constexpr size_t kMaxHeaderLevels = 3;           // the header, a tensor, its shape
constexpr size_t kMaxHeaderBytes = 100'000'000;  // the limit of the format's own reader

// Collects the keys of the outermost object. nlohmann's parse callback would do, but it walks through the whole object
// at the end of each value in it: 100,000 tensors took minutes.
struct TopLevelKeys final : nlohmann::json_sax<Json> {
  std::vector<std::string> names;
  int depth = 0;  // of objects and lists

  bool null() override { return true; }
  bool boolean(bool) override { return true; }
  bool number_integer(number_integer_t) override { return true; }
  bool number_unsigned(number_unsigned_t) override { return true; }
  bool number_float(number_float_t, const string_t&) override { return true; }
  bool string(string_t&) override { return true; }
  bool binary(binary_t&) override { return true; }
  bool start_object(size_t) override { return ++depth > 0; }
  bool key(string_t& name) override {
    if (depth == 1) names.push_back(std::move(name));
    return true;
  }
  bool end_object() override { return --depth >= 0; }
  bool start_array(size_t) override { return ++depth > 0; }
  bool end_array() override { return --depth >= 0; }
  bool parse_error(size_t, const std::string&, const Json::exception&) override { return false; }
};

// Checks one file's header; every error names the file.
class HeaderReader {
 public:
  HeaderReader(const MappedFile& file, std::string what) : file_(file), what_(std::move(what)) {}

  std::vector<SafetensorsEntry> read(std::map<std::string, std::string>& metadata) {
    const Json header = parse();
    std::vector<SafetensorsEntry> entries;
    for (const auto& [name, value] : header.items()) {
      if (name == "__metadata__") {
        read_metadata(value, metadata);
      } else {
        entries.push_back(read_entry(name, value));
      }
    }
    std::stable_sort(entries.begin(), entries.end(), [](const auto& a, const auto& b) { return a.begin < b.begin; });
    refuse_overlaps(entries);
    refuse_more_bytes(entries);
    return entries;
  }

 private:
  [[noreturn]] void refuse(const std::string& reason) const {
    throw UserError(ExitCode::kBadInput, fmt::format("{} '{}' is not usable: {}", what_, file_.path(), reason));
  }

  Json parse() {
    if (file_.size() < kLengthBytes) {
      refuse(fmt::format("{} bytes are too few for a safetensors header; the file is truncated or has another format",
                         file_.size()));
    }
    uint64_t length = 0;
    std::memcpy(&length, file_.data(), kLengthBytes);
    const char* text = reinterpret_cast<const char*>(file_.data()) + kLengthBytes;
    if (length > kMaxHeaderBytes) {
      refuse(fmt::format("its header claims {} bytes (the format allows {}); this is not a safetensors file", length,
                         kMaxHeaderBytes));
    }
    if (length > file_.size() - kLengthBytes) {
      refuse(fmt::format("its header claims {} bytes, but only {} follow; the file is truncated", length,
                         file_.size() - kLengthBytes));
    }
    data_begin_ = kLengthBytes + length;
    if (nests_deeper({text, length}, kMaxHeaderLevels)) {
      refuse("its header nests deeper than the JSON of tensors");
    }
    refuse_repeated_names(text, length);
    try {
      Json header = Json::parse(text, text + length);
      if (!header.is_object()) refuse("its header is not a JSON object");
      return header;
    } catch (const Json::exception& error) {
      refuse(fmt::format("its header is not JSON ({})", error.what()));
    }
  }

  // nlohmann silently keeps one of two equal keys.
  void refuse_repeated_names(const char* text, size_t length) const {
    TopLevelKeys keys;
    Json::sax_parse(text, text + length, &keys);  // errors are for the parse that follows
    std::sort(keys.names.begin(), keys.names.end());
    const auto twice = std::adjacent_find(keys.names.begin(), keys.names.end());
    if (twice == keys.names.end()) return;
    const auto same = std::equal_range(twice, keys.names.end(), *twice);
    refuse(fmt::format("tensor '{}' is listed {} times", *twice, same.second - same.first));
  }

  void read_metadata(const Json& value, std::map<std::string, std::string>& metadata) const {
    if (!value.is_object()) refuse("__metadata__ is not an object");
    for (const auto& [key, text] : value.items()) {
      if (!text.is_string()) refuse(fmt::format("__metadata__ '{}' is not a string", key));
      metadata[key] = text.get<std::string>();
    }
  }

  static bool is_list_of_unsigned(const Json& value) {
    return value.is_array() && std::all_of(value.begin(), value.end(), [](const Json& x) {
             return x.is_number_unsigned() && x.get<uint64_t>() <= static_cast<uint64_t>(INT64_MAX);
           });
  }

  SafetensorsEntry read_entry(const std::string& name, const Json& value) const {
    if (!value.is_object() || !value.contains("dtype") || !value.contains("shape") || !value.contains("data_offsets")) {
      refuse(fmt::format("tensor '{}' has no dtype, shape or data_offsets", name));
    }
    const Json &dtype = value["dtype"], &shape = value["shape"], &offsets = value["data_offsets"];
    if (!dtype.is_string()) refuse(fmt::format("tensor '{}': dtype is not a string", name));
    if (!is_list_of_unsigned(shape)) refuse(fmt::format("tensor '{}': bad shape {}", name, shape.dump()));
    if (!is_list_of_unsigned(offsets) || offsets.size() != 2) {
      refuse(fmt::format("tensor '{}': bad data_offsets {}", name, offsets.dump()));
    }
    const auto known = dtype_named(kDtypes, dtype.get<std::string>());
    if (!known) refuse(fmt::format("tensor '{}' has the unknown dtype '{}'", name, dtype.get<std::string>()));

    SafetensorsEntry entry{.name = name, .dtype = *known, .shape = shape.get<std::vector<int64_t>>()};
    const uint64_t begin = offsets[0].get<uint64_t>(), end = offsets[1].get<uint64_t>();
    const uint64_t available = file_.size() - data_begin_;
    if (begin > end) refuse(fmt::format("tensor '{}': data_offsets {} run backwards", name, offsets.dump()));
    if (end > available) {
      refuse(fmt::format("tensor '{}' ends at byte {} of the data, but the file has only {}; it is truncated", name,
                         end, available));
    }
    const auto expected = num_bytes_of(entry.shape, entry.dtype);
    if (!expected) refuse(fmt::format("tensor '{}': its shape overflows 64 bits", name));
    if (end - begin != static_cast<uint64_t>(*expected)) {
      refuse(fmt::format("tensor '{}': {} of shape {} needs {} bytes, but data_offsets give {}", name,
                         dtype.get<std::string>(), shape.dump(), *expected, end - begin));
    }
    entry.begin = data_begin_ + begin;
    entry.end = data_begin_ + end;
    return entry;
  }

  void refuse_overlaps(const std::vector<SafetensorsEntry>& entries) const {
    const SafetensorsEntry* before = nullptr;
    for (const auto& entry : entries) {
      if (entry.begin == entry.end) continue;
      if (before && before->end > entry.begin) {
        refuse(fmt::format("tensors '{}' and '{}' overlap", before->name, entry.name));
      }
      before = &entry;
    }
  }

  // For example two files concatenated with `cat`: the second would be silently ignored.
  void refuse_more_bytes(const std::vector<SafetensorsEntry>& entries) const {
    uint64_t end = data_begin_;
    for (const auto& entry : entries) end = std::max(end, entry.end);
    if (end < file_.size()) {
      refuse(fmt::format(
          "{} bytes follow the last tensor, which the format does not allow; safetensors files cannot be concatenated",
          file_.size() - end));
    }
  }

  const MappedFile& file_;
  const std::string what_;
  size_t data_begin_ = 0;
};

}  // namespace

const char* safetensors_dtype_name(at::ScalarType dtype) {
  return name_of(kDtypes, dtype);
}

SafetensorsFile::SafetensorsFile(const std::string& path, const std::string& what)
    : file_(MappedFile::open(path, what)) {
  entries_ = HeaderReader(*file_, what).read(metadata_);
  for (size_t i = 0; i < entries_.size(); ++i) index_[entries_[i].name] = i;
}

const SafetensorsEntry* SafetensorsFile::find(const std::string& name) const {
  const auto found = index_.find(name);
  return found == index_.end() ? nullptr : &entries_[found->second];
}

at::Tensor SafetensorsFile::tensor(const SafetensorsEntry& entry) const {
  return tensor_over(file_, entry.begin, entry.dtype, entry.shape);
}

}  // namespace dslaunch::runtime
