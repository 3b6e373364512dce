#include "runtime/data/array_file.hpp"

#include <algorithm>
#include <cstring>
#include <set>
#include <span>
#include <utility>

#include "base/error.hpp"
#include "base/format.hpp"
#include "runtime/data/megatron_file.hpp"
#include "runtime/data/npy_format.hpp"
#include "runtime/state/mapped_file.hpp"
#include "runtime/state/safetensors_file.hpp"
#include "runtime/state/zip_members.hpp"

namespace dslaunch::runtime {
namespace {

constexpr char kDataFile[] = "data file";
constexpr size_t kMaxNpyHeaderBytes = size_t{1} << 20;  // NumPy's own are some hundred bytes

std::string subject_of(const std::string& path) {
  return fmt::format("{} '{}'", kDataFile, path);
}

// File name without directory and extension.
std::string stem_of(const std::string& path) {
  std::string name = path.substr(path.find_last_of('/') + 1);
  return name.substr(0, name.find_last_of('.'));
}

std::span<const uint8_t> bytes_of(const MappedFile& file) {
  return {file.data(), file.size()};
}

std::vector<FileArray> read_safetensors(const std::string& path) {
  const SafetensorsFile file(path, kDataFile);
  std::vector<FileArray> arrays;
  for (const auto& entry : file.entries()) {
    arrays.push_back({entry.name, entry.dtype, entry.shape, file.file()->data() + entry.begin, file.file(), path});
  }
  return arrays;
}

FileArray read_npy(const std::string& path) {
  const auto file = MappedFile::open(path, kDataFile);
  const NpyHeader header = read_npy_header(bytes_of(*file), subject_of(path));
  return {stem_of(path), header.dtype, header.shape, file->data() + header.data_begin, file, path};
}

// An archive of torch.save looks like one of NumPy's from outside.
void refuse_pickle(const std::vector<ZipMember>& members, const std::string& path) {
  if (std::none_of(members.begin(), members.end(), [](const auto& each) { return each.name.ends_with("/data.pkl"); })) {
    return;
  }
  throw UserError(ExitCode::kBadInput, fmt::format("{} was written by torch.save, as a Python pickle; save its tensors "
                                                   "with safetensors.torch.save_file, or as arrays with numpy.savez",
                                                   subject_of(path)));
}

// Repeated names result from appending to an archive. NumPy reads the last entry of a name, which is not guaranteed.
void refuse_repeated_names(const std::vector<ZipMember>& members, const std::string& path) {
  std::set<std::string> seen;
  for (const auto& member : members) {
    if (seen.insert(member.name).second) continue;
    throw UserError(ExitCode::kBadInput, fmt::format("{} has more than one member '{}'; save it again with "
                                                     "numpy.savez(path, **numpy.load(path)), which keeps the last one",
                                                     subject_of(path), member.name));
  }
}

std::vector<FileArray> read_npz(const std::string& path) {
  const auto file = MappedFile::open(path, kDataFile);
  const auto members = read_zip_members(bytes_of(*file), subject_of(path));
  refuse_pickle(members, path);
  refuse_repeated_names(members, path);
  // Files that were written without checksums are as good as .npy files.
  const bool checks = has_checksums(members);
  std::vector<FileArray> arrays;
  for (const auto& member : members) {
    const std::string subject = fmt::format("{} member '{}'", subject_of(path), member.name);
    const auto beginning = member.deflated ? inflate_beginning(member, kMaxNpyHeaderBytes) : std::vector<uint8_t>();
    const std::span<const uint8_t> bytes = member.deflated ? std::span<const uint8_t>(beginning) : member.bytes;
    const NpyHeader header = read_npy_header(bytes, member.size, subject);
    const std::string name =
        member.name.ends_with(".npy") ? member.name.substr(0, member.name.size() - 4) : member.name;
    FileArray array{name, header.dtype, header.shape, nullptr, file, path};
    if (!member.deflated) array.data = member.bytes.data() + header.data_begin;
    if (member.deflated || checks) array.member = std::make_shared<const ZipMember>(member);
    arrays.push_back(std::move(array));
  }
  return arrays;
}

at::ScalarType token_dtype(const std::string& name) {
  static constexpr std::pair<const char*, at::ScalarType> kKnown[] = {{"uint8", at::kByte},
                                                                      {"uint16", at::kUInt16},
                                                                      {"uint32", at::kUInt32},
                                                                      {"int32", at::kInt},
                                                                      {"int64", at::kLong}};
  for (const auto& [known, dtype] : kKnown) {
    if (name == known) return dtype;
  }
  throw UserError(ExitCode::kBadInput,
                  fmt::format("data.dtype '{}' cannot hold tokens; use uint8, uint16, uint32, int32 or int64", name));
}

}  // namespace

FileFormat file_format(const std::string& path, const std::string& format, bool has_seq_len) {
  if (format == "safetensors") return FileFormat::kSafetensors;
  if (format == "npz") return FileFormat::kNpz;
  if (format == "npy") return FileFormat::kNpy;
  if (format == "tokens") return FileFormat::kTokens;
  if (format == "megatron") return FileFormat::kMegatron;
  if (format != "auto") {
    throw UserError(
        ExitCode::kBadInput,
        fmt::format("data.format '{}' is not one of auto, safetensors, npy, npz, tokens, megatron", format));
  }
  if (path.ends_with(".safetensors")) return FileFormat::kSafetensors;
  if (path.ends_with(".npz")) return FileFormat::kNpz;
  if (is_megatron_data(path)) return FileFormat::kMegatron;
  const auto file = MappedFile::open(path, kDataFile);
  // A flat .npy of integers with a sequence length is a token stream.
  if (looks_like_npy(bytes_of(*file))) return has_seq_len ? FileFormat::kTokens : FileFormat::kNpy;
  if (path.ends_with(".npy")) return FileFormat::kNpy;
  if (file->size() >= 4 && std::memcmp(file->data(), "PK\x03\x04", 4) == 0) return FileFormat::kNpz;
  if (file->size() >= 9 && file->data()[8] == '{' && file->data()[7] == 0) return FileFormat::kSafetensors;
  if (has_seq_len) return FileFormat::kTokens;
  throw UserError(ExitCode::kBadInput,
                  fmt::format("{} has an unknown format (known: .safetensors, .npy, .npz, .bin beside .idx). A flat "
                              "file of tokens needs \"format\": \"tokens\", \"dtype\" and \"seq_len\" in the data "
                              "section; tools/tokenize converts text to tokens",
                              subject_of(path)));
}

std::vector<FileArray> read_arrays(const std::string& path, FileFormat format) {
  if (format == FileFormat::kNpy) return {read_npy(path)};
  return format == FileFormat::kNpz ? read_npz(path) : read_safetensors(path);
}

void prepare(FileArray& array) {
  const auto member = std::exchange(array.member, nullptr);
  if (member == nullptr) return;
  if (member->deflated) {
    auto unpacked = std::make_shared<const std::vector<uint8_t>>(inflate_member(*member, subject_of(array.path)));
    array.data = unpacked->data() + read_npy_header(*unpacked, subject_of(array.path)).data_begin;
    array.owner = std::move(unpacked);
  } else if (!matches_crc(*member)) {
    throw UserError(ExitCode::kBadInput,
                    fmt::format("{} is damaged: the checksum of its array '{}' does not match; copy or save the file "
                                "again",
                                subject_of(array.path), array.name));
  }
}

FileArray read_token_stream(const std::string& path, const std::string& dtype) {
  const auto file = MappedFile::open(path, kDataFile);
  if (looks_like_npy(bytes_of(*file))) {
    FileArray array = read_npy(path);
    if (array.shape.size() != 1 || !c10::isIntegralType(array.dtype, false)) {
      throw UserError(ExitCode::kBadInput,
                      fmt::format("{} cannot be a token stream: it has the shape ({}) and dtype {}, expected one dim "
                                  "of integers (or leave out data.seq_len and \"format\": \"tokens\")",
                                  subject_of(path), fmt::join(array.shape, ", "), c10::toString(array.dtype)));
    }
    return array;
  }
  const at::ScalarType type = token_dtype(dtype);
  const size_t width = c10::elementSize(type);
  if (file->size() % width != 0) {
    throw UserError(
        ExitCode::kBadInput,
        fmt::format("{} has {} bytes, which is not a multiple of the size of {} tokens; is data.dtype right?",
                    subject_of(path), file->size(), dtype));
  }
  return {stem_of(path), type, {static_cast<int64_t>(file->size() / width)}, file->data(), file, path};
}

}  // namespace dslaunch::runtime
