#include "launch/plan/count_samples.hpp"

#include <algorithm>
#include <bit>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>

#include "base/error.hpp"
#include "base/format.hpp"
#include "base/input_file.hpp"
#include "base/json_depth.hpp"
#include "base/parse_int.hpp"

namespace dslaunch::launch {
namespace {

namespace fs = std::filesystem;

// Longer headers are left to the ranks.
constexpr uint64_t kMaxHeaderBytes = uint64_t{16} << 20;
constexpr size_t kMaxLevels = 8;

std::string read_at(std::ifstream& file, uint64_t begin, uint64_t count) {
  std::string bytes(count, '\0');
  file.seekg(static_cast<std::streamoff>(begin));
  file.read(bytes.data(), static_cast<std::streamsize>(count));
  bytes.resize(static_cast<size_t>(std::max<std::streamsize>(file.gcount(), 0)));
  return bytes;
}

// A number of `count` bytes, the lowest first.
uint64_t number_in(const std::string& bytes, size_t begin, size_t count) {
  uint64_t value = 0;
  for (size_t i = count; i > 0; --i) value = value << 8 | static_cast<uint8_t>(bytes[begin + i - 1]);
  return value;
}

// The first dimension of the first array; all have the same.
std::optional<int64_t> samples_in_safetensors(std::ifstream& file) {
  const std::string length = read_at(file, 0, 8);
  if (length.size() < 8 || number_in(length, 0, 8) > kMaxHeaderBytes) return std::nullopt;
  const std::string header = read_at(file, 8, number_in(length, 0, 8));
  if (nests_deeper(header, kMaxLevels)) return std::nullopt;
  const auto arrays = nlohmann::json::parse(header, nullptr, /*allow_exceptions=*/false);
  if (!arrays.is_object()) return std::nullopt;
  for (const auto& [name, array] : arrays.items()) {
    if (name == "__metadata__") continue;
    const auto shape = array.is_object() ? array.find("shape") : array.end();
    if (!array.is_object() || shape == array.end() || !shape->is_array() || shape->empty() ||
        !shape->front().is_number_unsigned()) {
      return std::nullopt;
    }
    return shape->front().get<int64_t>();
  }
  return std::nullopt;
}

// "\x93NUMPY", version, length of the header, {'descr': …, 'shape': (N, …), }
std::optional<int64_t> samples_in_npy(std::ifstream& file) {
  const std::string start = read_at(file, 0, 12);
  if (start.size() < 12 || start.substr(0, 6) != "\x93NUMPY") return std::nullopt;
  const bool is_first_version = start[6] == 1;
  const uint64_t length = number_in(start, 8, is_first_version ? 2 : 4);
  if (length > kMaxHeaderBytes) return std::nullopt;
  const std::string header = read_at(file, is_first_version ? 10 : 12, length);
  const size_t key = header.find("'shape'");
  const size_t open = key == header.npos ? key : header.find('(', key);
  if (open == header.npos) return std::nullopt;
  const size_t end = header.find_first_of(",)", open);
  return end == header.npos ? std::nullopt : parse_int<int64_t>(header.substr(open + 1, end - open - 1));
}

int64_t bytes_of_token(const std::string& dtype) {
  if (dtype == "uint8") return 1;
  if (dtype == "uint16") return 2;
  return dtype == "int64" ? 8 : 4;
}

std::optional<int64_t> samples_in(const std::string& path, const std::string& format) {
  std::ifstream file(path, std::ios::binary);
  const bool by_ending = format == "auto";
  if (format == "safetensors" || (by_ending && path.ends_with(".safetensors"))) return samples_in_safetensors(file);
  if (format == "npy" || (by_ending && path.ends_with(".npy"))) return samples_in_npy(file);
  return std::nullopt;
}

}  // namespace

std::optional<int64_t> count_samples(const config::Data& data, const std::string& cwd) {
  if (data.synthetic_train || data.train.empty()) return std::nullopt;
  int64_t sum = 0;
  for (const auto& path : expand_globs(data.train, "data file", cwd)) {
    if (data.format == "tokens") {
      std::error_code error;
      const uint64_t bytes = fs::file_size(path, error);
      if (error) return std::nullopt;
      sum += static_cast<int64_t>(bytes) / bytes_of_token(data.dtype);
    } else if (const auto samples = samples_in(path, data.format)) {
      sum += *samples;
    } else {
      return std::nullopt;
    }
  }
  if (data.format != "tokens") return sum;
  return data.seq_len > 0 && sum > 0 ? std::optional((sum - 1) / data.seq_len) : std::nullopt;
}

void check_enough_samples(const config::JobConfig& config, const std::string& cwd, int data_ranks) {
  if (!config.data.drop_last) return;
  const auto samples = count_samples(config.data, cwd);
  const auto& batch = config.batch;
  if (!samples || *samples >= batch.train_batch) return;
  throw UserError(
      ExitCode::kBadInput,
      fmt::format("the training data has {} sample{}, fewer than one global batch of {} (micro batch {} x accumulation "
                  "{} x {} data rank{}): use fewer ranks, smaller batches or more data, or set data.drop_last to false",
                  *samples, *samples == 1 ? "" : "s", batch.train_batch, batch.micro_batch, batch.accumulation,
                  data_ranks, data_ranks == 1 ? "" : "s"));
}

}  // namespace dslaunch::launch
