#include "launch/plan/input_files.hpp"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <vector>

#include "base/byte_fields.hpp"
#include "base/input_file.hpp"
#include "base/model_archive.hpp"
#include "base/raw_data.hpp"
#include "base/zip_directory.hpp"
#include "launch/plan/zip_file.hpp"

namespace dslaunch::launch {
namespace {

namespace fs = std::filesystem;

constexpr const char* kDataFile = "data file";

std::string read_at(std::ifstream& file, uint64_t begin, uint64_t count) {
  std::string bytes(count, '\0');
  file.clear();
  file.seekg(static_cast<std::streamoff>(begin));
  file.read(bytes.data(), static_cast<std::streamsize>(count));
  bytes.resize(static_cast<size_t>(file.gcount()));
  return bytes;
}

// The records inside the archive's one directory. Empty: this function cannot parse the archive, and the worker reads
// it.
std::vector<std::string> records_in(std::ifstream& file, uint64_t file_bytes) {
  file.clear();
  try {
    const auto directory = read_zip_file_directory(file, file_bytes);
    std::vector<std::string> records;
    for (const auto& entry : read_zip_entries(directory.bytes, directory.num_entries)) {
      records.push_back(entry.name.substr(entry.name.find('/') + 1));
    }
    return records;
  } catch (const WireError&) {
    return {};
  }
}

// Megatron's data is named by X, X.bin or X.idx, and read from both files.
std::string name_of_pair(const std::string& path) {
  const bool is_of_pair = path.ends_with(".bin") || path.ends_with(".idx");
  return is_of_pair ? path.substr(0, path.size() - 4) : path;
}

bool is_pair(const std::string& name) {
  std::error_code ignored;
  return fs::exists(name + ".bin", ignored) && fs::exists(name + ".idx", ignored);
}

void check_data_file(const std::string& path, const std::string& format) {
  if (format != "megatron" && !is_pair(path)) {
    open_input_file(path, kDataFile);
  } else {
    for (const char* ending : {".idx", ".bin"}) open_input_file(name_of_pair(path) + ending, kDataFile);
  }
}

void check_data(const config::Data& data, const std::vector<std::string>& patterns, const std::string& cwd) {
  reject_raw_data(patterns, cwd, {data.format, data.dtype, data.seq_len});
  for (const auto& pattern : patterns) {
    const std::string path = fs::path(cwd) / pattern;
    // Only a plain path needs the check: files that a glob matches exist.
    if (expand_globs({pattern}, kDataFile, cwd) == std::vector{path}) check_data_file(path, data.format);
  }
}

// The index files of samples' metrics.
void check_data_efficiency(const config::DataEfficiency& efficiency, const std::string& cwd) {
  const auto check = [&](const std::string& path) { check_data_file(fs::path(cwd) / path, "megatron"); };
  for (const auto& metric : efficiency.metrics) {
    if (metric.is_single_cluster) continue;
    check(metric.index_to_sample_path);
    if (!metric.by_percentile) check(metric.index_to_metric_path);
  }
  if (const auto& dynamic = efficiency.dynamic_batching) {
    check(fs::path(dynamic->metrics_path) / "seqlen" / "seqlen_sample_to_metric");
  }
}

}  // namespace

void check_model_archive(const std::string& path) {
  open_input_file(path, "model");
  std::ifstream file(path, std::ios::binary | std::ios::ate);
  const auto size = static_cast<uint64_t>(std::max<std::streamoff>(file.tellg(), 0));
  const uint64_t tail_bytes = std::min<uint64_t>(size, kZipEndBytes);
  require_zip(path, size, read_at(file, 0, 4), read_at(file, size - tail_bytes, tail_bytes));
  if (const auto records = records_in(file, size); !records.empty()) require_torchscript(path, records);
}

void check_named_files(const config::JobConfig& config, const std::string& cwd) {
  check_data(config.data, config.data.train, cwd);
  check_data(config.data, config.data.eval, cwd);
  check_data_efficiency(config.data_efficiency, cwd);
  for (const auto& metric : config.train.metrics) {
    if (!metric.module.empty()) check_model_archive(fs::path(cwd) / metric.module);
  }
  if (const auto& samples = config.train.samples; samples && !samples->prompts_file.empty()) {
    open_input_file(fs::path(cwd) / samples->prompts_file, "file of prompts");
  }
  if (config.loss.empty() || config::is_own_loss(config.loss)) return;
  check_model_archive(fs::path(cwd) / config.loss);
}

}  // namespace dslaunch::launch
