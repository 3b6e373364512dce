#include "base/raw_data.hpp"

#include <algorithm>
#include <array>
#include <cctype>
#include <filesystem>
#include <optional>
#include <set>

#include "base/error.hpp"
#include "base/format.hpp"
#include "base/input_file.hpp"
#include "base/shell_words.hpp"

namespace dslaunch {
namespace {

namespace fs = std::filesystem;

enum class RawKind : uint8_t { kTable, kText, kImages, kCifar, kDataSet, kSplits };

constexpr std::array kCompressions = {".gz", ".bz2", ".xz"};
constexpr std::array kTables = {".jsonl", ".ndjson", ".json", ".csv", ".tsv", ".parquet", ".arrow"};
constexpr std::array kTexts = {".txt", ".text"};
constexpr std::array kImages = {".jpg", ".jpeg", ".png", ".bmp", ".gif", ".webp", ".tif", ".tiff", ".ppm", ".pgm"};
constexpr std::array kSamples = {".safetensors", ".npz", ".npy", ".idx"};
constexpr int kMaxEntries = 1000;  // of a directory that may have millions

template <class List>
bool contains(const List& list, const std::string& value) {
  return std::find(list.begin(), list.end(), value) != list.end();
}

// The extension in lower case, without that of a compression.
std::string extension_of(const fs::path& path) {
  std::string name = path.filename();
  std::transform(name.begin(), name.end(), name.begin(), [](unsigned char c) { return std::tolower(c); });
  const fs::path lower(name);
  return contains(kCompressions, lower.extension()) ? lower.stem().extension() : lower.extension();
}

// By its name, and by its size: records of 1 (CIFAR-10) or 2 (CIFAR-100) label bytes and 32 x 32 x 3 of the image.
// train.bin may as well be one half of Megatron's pair.
bool is_cifar(const fs::path& path) {
  static const std::set<std::string> kNames = {"data_batch_1.bin", "data_batch_2.bin", "data_batch_3.bin",
                                               "data_batch_4.bin", "data_batch_5.bin", "test_batch.bin",
                                               "train.bin",        "test.bin"};
  std::error_code failed;
  const auto size = fs::file_size(path, failed);
  const bool has_records = !failed && size > 0 && (size % 3073 == 0 || size % 3074 == 0);
  return has_records && kNames.count(path.filename()) > 0 &&
         !fs::exists(fs::path(path).replace_extension(".idx"), failed);
}

std::optional<RawKind> kind_of_file(const fs::path& path) {
  const std::string extension = extension_of(path);
  if (contains(kTables, extension)) return RawKind::kTable;
  if (contains(kTexts, extension)) return RawKind::kText;
  if (is_cifar(path)) return RawKind::kCifar;
  return std::nullopt;
}

bool has_image(const fs::path& directory) {
  std::error_code failed;
  int seen = 0;
  for (fs::directory_iterator at(directory, failed), end; !failed && at != end && seen < kMaxEntries; ++seen) {
    if (contains(kImages, extension_of(at->path()))) return true;
    at.increment(failed);
  }
  return false;
}

std::optional<RawKind> kind_of_directory(const fs::path& directory) {
  std::error_code failed;
  if (fs::exists(directory / "dataset_dict.json", failed)) return RawKind::kSplits;
  if (fs::exists(directory / "state.json", failed)) return RawKind::kDataSet;
  std::optional<RawKind> found;
  int seen = 0;
  for (fs::directory_iterator at(directory, failed), end; !failed && at != end && seen < kMaxEntries; ++seen) {
    if (contains(kSamples, extension_of(at->path()))) return std::nullopt;  // then other files are notes about them
    std::error_code ignored;
    const auto kind = at->is_directory(ignored)
                          ? (has_image(at->path()) ? std::optional(RawKind::kImages) : std::nullopt)
                          : kind_of_file(at->path());
    if (kind == RawKind::kImages || kind == RawKind::kCifar) return kind;
    if (kind && found != RawKind::kTable) found = kind;
    at.increment(failed);
  }
  return found;
}

std::optional<RawKind> kind_of(const fs::path& path) {
  std::error_code failed;
  if (fs::is_directory(path, failed)) return kind_of_directory(path);
  return fs::is_regular_file(path, failed) ? kind_of_file(path) : std::nullopt;
}

std::string description(RawKind kind, bool is_directory) {
  switch (kind) {
    case RawKind::kTable:
      return is_directory ? "is a directory of tables" : "is a table";
    case RawKind::kText:
      return is_directory ? "is a directory of texts" : "is a text";
    case RawKind::kImages:
      return "is a directory of images";
    case RawKind::kCifar:
      return is_directory ? "is a directory of CIFAR's images" : "has CIFAR's images";
    default:
      return "is a data set that datasets' save_to_disk wrote";
  }
}

// "chats" of "data/chats.jsonl.gz", "photos" of "photos/train/" or of "data/photos/*.jsonl".
std::string name_of_result(const std::string& pattern, bool is_directory) {
  fs::path path = pattern;
  if (!path.has_filename()) path = path.parent_path();
  if (is_directory) return path.filename().empty() ? "train" : path.filename().string();
  if (path.filename().string().find_first_of("*?[") != std::string::npos) return "train";
  const std::string name = path.filename();
  return name.substr(0, name.find('.') == 0 ? name.npos : name.find('.'));
}

// A glob stays open to the shell.
std::string shell_pattern(const std::string& pattern, const fs::path& path) {
  std::error_code failed;
  const bool is_glob = pattern.find_first_of("*?[") != std::string::npos && !fs::exists(path, failed);
  return is_glob && pattern.find_first_of(" '\"$&;|<>()`\\") == std::string::npos ? pattern : shell_word(pattern);
}

// A token stream may have CIFAR's name, and the bytes of a text are one.
bool is_token_stream(RawKind kind, const DataReading& reading) {
  return reading.seq_len > 0 && (kind == RawKind::kCifar || (kind == RawKind::kText && reading.dtype == "uint8"));
}

[[noreturn]] void reject(const std::string& pattern, const fs::path& path, const fs::path& whole, RawKind kind,
                         const DataReading& reading) {
  std::error_code failed;
  const bool is_directory = fs::is_directory(path, failed);
  const bool has_tokens = kind != RawKind::kImages && kind != RawKind::kCifar;
  const bool to_stream = kind == RawKind::kText && reading.seq_len > 0;
  const std::string source = kind == RawKind::kSplits ? (fs::path(pattern) / "train").string() : pattern;
  const std::string result = shell_word(name_of_result(pattern, is_directory) + (to_stream ? ".bin" : ".safetensors"));
  std::string command = fmt::format("tools/tokenize {} {}", shell_pattern(source, whole), result);
  if (has_tokens && !to_stream) command += fmt::format(" --seq {}", reading.seq_len > 0 ? reading.seq_len : 512);
  if (has_tokens) command += " --tokenizer DIR";
  throw UserError(
      ExitCode::kBadInput,
      fmt::format("data file '{}' {}, which a run does not read; convert it once with '{}', and give the run "
                  "{}{}",
                  path.string(), description(kind, is_directory), command, result,
                  has_tokens ? " (DIR: of the model's tokenizer; without --tokenizer tokens are bytes)" : ""));
}

}  // namespace

void reject_raw_data(const std::vector<std::string>& patterns, const std::string& directory,
                     const DataReading& reading) {
  if (reading.format != "auto") return;
  for (const auto& pattern : patterns) {
    const std::string path = expand_globs({pattern}, "data file", directory).front();
    const auto kind = kind_of(path);
    if (kind && !is_token_stream(*kind, reading)) reject(pattern, path, fs::path(directory) / pattern, *kind, reading);
  }
}

}  // namespace dslaunch
