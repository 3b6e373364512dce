#include "runtime/state/safetensors_file.hpp"

#include <algorithm>
#include <array>
#include <cstring>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>

#include "base/error.hpp"
#include "base/format.hpp"

namespace dslaunch::runtime {
namespace {

using Json = nlohmann::json;

constexpr size_t kLengthBytes = 8;
constexpr size_t kMaxHeaderBytes = 100'000'000;  // the limit that the format's own reader has

struct DtypeName {
  const char* name;
  at::ScalarType dtype;
};
constexpr std::array kDtypes = {
    DtypeName{"F64", at::kDouble},
    DtypeName{"F32", at::kFloat},
    DtypeName{"F16", at::kHalf},
    DtypeName{"BF16", at::kBFloat16},
    DtypeName{"I64", at::kLong},
    DtypeName{"I32", at::kInt},
    DtypeName{"I16", at::kShort},
    DtypeName{"I8", at::kChar},
    DtypeName{"U64", at::kUInt64},
    DtypeName{"U32", at::kUInt32},
    DtypeName{"U16", at::kUInt16},
    DtypeName{"U8", at::kByte},
    DtypeName{"BOOL", at::kBool},
    DtypeName{"F8_E4M3", at::kFloat8_e4m3fn},
    DtypeName{"F8_E5M2", at::kFloat8_e5m2},
    DtypeName{"C64", at::kComplexFloat},
};

std::optional<at::ScalarType> dtype_named(const std::string& name) {
  for (const auto& known : kDtypes) {
    if (name == known.name) return known.dtype;
  }
  return std::nullopt;
}

// Checks one file's header; every refusal names the file.
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
    return entries;
  }

 private:
  [[noreturn]] void refuse(const std::string& reason) const {
    throw UserError(ExitCode::kBadInput, fmt::format("{} '{}' is not usable: {}", what_, file_.path(), reason));
  }

  Json parse() {
    if (file_.size() < kLengthBytes) {
      refuse(fmt::format("{} bytes are too few for a safetensors header; the file is truncated or of another format",
                         file_.size()));
    }
    uint64_t length = 0;
    std::memcpy(&length, file_.data(), kLengthBytes);
    const char* text = reinterpret_cast<const char*>(file_.data()) + kLengthBytes;
    if (length > kMaxHeaderBytes) {
      refuse(fmt::format("its header claims {} bytes (the format allows {}); this is no safetensors file", length,
                         kMaxHeaderBytes));
    }
    if (length > file_.size() - kLengthBytes) {
      refuse(fmt::format("its header claims {} bytes, but only {} follow; the file is truncated", length,
                         file_.size() - kLengthBytes));
    }
    data_begin_ = kLengthBytes + length;
    refuse_repeated_names(text, length);
    try {
      Json header = Json::parse(text, text + length);
      if (!header.is_object()) refuse("its header is not a JSON object");
      return header;
    } catch (const Json::exception& error) {
      refuse(fmt::format("its header is not JSON ({})", error.what()));
    }
  }

  // nlohmann keeps one of two equal keys without a word.
  void refuse_repeated_names(const char* text, size_t length) const {
    std::map<std::string, int> seen;
    auto count_keys = [&](int depth, Json::parse_event_t event, Json& parsed) {
      if (event == Json::parse_event_t::key && depth == 1) ++seen[parsed.get<std::string>()];
      return depth < 2;  // nothing deeper needs to be kept
    };
    const Json kept_nothing = Json::parse(text, text + length, count_keys, false);
    (void)kept_nothing;
    for (const auto& [name, times] : seen) {
      if (times > 1) refuse(fmt::format("tensor '{}' is listed {} times", name, times));
    }
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
      refuse(fmt::format("tensor '{}' lacks dtype, shape or data_offsets", name));
    }
    const Json &dtype = value["dtype"], &shape = value["shape"], &offsets = value["data_offsets"];
    if (!dtype.is_string()) refuse(fmt::format("tensor '{}': dtype is not a string", name));
    if (!is_list_of_unsigned(shape)) refuse(fmt::format("tensor '{}': bad shape {}", name, shape.dump()));
    if (!is_list_of_unsigned(offsets) || offsets.size() != 2) {
      refuse(fmt::format("tensor '{}': bad data_offsets {}", name, offsets.dump()));
    }
    const auto known = dtype_named(dtype.get<std::string>());
    if (!known) refuse(fmt::format("tensor '{}' has the unknown dtype '{}'", name, dtype.get<std::string>()));

    SafetensorsEntry entry{.name = name, .dtype = *known, .shape = shape.get<std::vector<int64_t>>()};
    const uint64_t begin = offsets[0].get<uint64_t>(), end = offsets[1].get<uint64_t>();
    const uint64_t available = file_.size() - data_begin_;
    if (begin > end) refuse(fmt::format("tensor '{}': data_offsets {} run backwards", name, offsets.dump()));
    if (end > available) {
      refuse(fmt::format("tensor '{}' ends at byte {} of the data, but the file holds only {}; it is truncated", name,
                         end, available));
    }
    const uint64_t expected = bytes_of(entry);
    if (end - begin != expected) {
      refuse(fmt::format("tensor '{}': {} of shape {} takes {} bytes, data_offsets give {}", name,
                         dtype.get<std::string>(), shape.dump(), expected, end - begin));
    }
    entry.begin = data_begin_ + begin;
    entry.end = data_begin_ + end;
    return entry;
  }

  uint64_t bytes_of(const SafetensorsEntry& entry) const {
    // Strides are products of the sizes without the zeros; they too must fit.
    int64_t extent = static_cast<int64_t>(c10::elementSize(entry.dtype));
    bool is_empty = false;
    for (int64_t size : entry.shape) {
      is_empty |= size == 0;
      if (size > 0 && __builtin_mul_overflow(extent, size, &extent)) {
        refuse(fmt::format("tensor '{}': its shape overflows 64 bits", entry.name));
      }
    }
    return is_empty ? 0 : static_cast<uint64_t>(extent);
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

  const MappedFile& file_;
  const std::string what_;
  size_t data_begin_ = 0;
};

uint64_t numel_of(const TensorDescription& tensor) {
  uint64_t numel = 1;
  for (int64_t size : tensor.shape) numel *= static_cast<uint64_t>(size);
  return numel;
}

}  // namespace

std::string safetensors_dtype_name(at::ScalarType dtype) {
  for (const auto& known : kDtypes) {
    if (dtype == known.dtype) return known.name;
  }
  return "";
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

SafetensorsWriter::SafetensorsWriter(const std::string& path, std::vector<TensorDescription> tensors,
                                     const std::map<std::string, std::string>& metadata, Observer observer)
    : tensors_(std::move(tensors)), observer_(std::move(observer)), file_(path) {
  std::stable_sort(tensors_.begin(), tensors_.end(),
                   [](const auto& a, const auto& b) { return c10::elementSize(a.dtype) > c10::elementSize(b.dtype); });
  std::set<std::string> names;
  std::string text = "{";
  if (!metadata.empty()) text += "\"__metadata__\":" + Json(metadata).dump();
  uint64_t offset = 0;
  for (const auto& tensor : tensors_) {
    const std::string dtype = safetensors_dtype_name(tensor.dtype);
    DSL_CHECK(!dtype.empty(), fmt::format("safetensors has no name for the dtype of '{}'", tensor.name));
    DSL_CHECK(names.insert(tensor.name).second, fmt::format("tensor '{}' is given twice", tensor.name));
    const uint64_t bytes = numel_of(tensor) * c10::elementSize(tensor.dtype);
    if (text.size() > 1) text += ',';
    text += Json(tensor.name).dump() + ':' +
            Json{{"dtype", dtype}, {"shape", tensor.shape}, {"data_offsets", {offset, offset + bytes}}}.dump();
    offset += bytes;
  }
  text += '}';
  text.resize((text.size() + 7) / 8 * 8, ' ');
  const uint64_t length = text.size();
  put(&length, sizeof length);
  put(text.data(), text.size());
}

void SafetensorsWriter::write(const at::Tensor& values) {
  DSL_CHECK(next_ < tensors_.size(), "more tensors than the header lists");
  DSL_CHECK(part_numel_ == 0 && static_cast<uint64_t>(values.numel()) == numel_of(tensors_[next_]),
            fmt::format("'{}' does not fit what the header says of it", tensors_[next_].name));
  write_part(values);
}

void SafetensorsWriter::write_part(const at::Tensor& values) {
  DSL_CHECK(next_ < tensors_.size(), "more tensors than the header lists");
  const auto& expected = tensors_[next_];
  part_numel_ += static_cast<uint64_t>(values.numel());
  DSL_CHECK(values.scalar_type() == expected.dtype && values.is_contiguous() && values.device().is_cpu() &&
                part_numel_ <= numel_of(expected),
            fmt::format("'{}' does not fit what the header says of it", expected.name));
  if (values.numel() > 0) put(values.const_data_ptr(), values.nbytes());
  if (part_numel_ < numel_of(expected)) return;
  ++next_;
  part_numel_ = 0;
}

void SafetensorsWriter::finish(bool sync) {
  DSL_CHECK(next_ == tensors_.size(), "fewer tensors than the header lists");
  file_.finish(sync);
}

void SafetensorsWriter::put(const void* data, size_t size) {
  file_.write(data, size);
  if (observer_) observer_(data, size);
  bytes_written_ += size;
}

}  // namespace dslaunch::runtime
