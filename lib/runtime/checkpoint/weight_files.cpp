#include "runtime/checkpoint/weight_files.hpp"

#include <filesystem>
#include <nlohmann/json.hpp>

#include "base/dump_json.hpp"
#include "base/format.hpp"

namespace dslaunch::runtime {

std::vector<FileRange> plan_file_ranges(const std::string& out, std::span<const uint64_t> bytes, uint64_t max_bytes) {
  std::vector<FileRange> files(1);
  for (size_t i = 0; i < bytes.size(); ++i) {
    const auto& last = files.back();
    if (max_bytes > 0 && last.end > last.begin && last.bytes + bytes[i] > max_bytes) files.push_back({"", i, i, 0});
    files.back().end = i + 1;
    files.back().bytes += bytes[i];
  }
  if (files.size() == 1) {
    files[0].path = out;
    return files;
  }
  const std::filesystem::path path(out);
  const std::string stem = (path.parent_path() / path.stem()).string();
  for (size_t i = 0; i < files.size(); ++i) {
    files[i].path = fmt::format("{}-{:05}-of-{:05}{}", stem, i + 1, files.size(), path.extension().string());
  }
  return files;
}

std::vector<WeightFile> plan_weight_files(const std::string& out, const std::vector<const SavedTensor*>& tensors,
                                          const std::function<uint64_t(const SavedTensor&)>& bytes_of,
                                          uint64_t max_bytes) {
  std::vector<uint64_t> bytes;
  for (const SavedTensor* tensor : tensors) bytes.push_back(bytes_of(*tensor));
  std::vector<WeightFile> files;
  for (const auto& range : plan_file_ranges(out, bytes, max_bytes)) {
    files.push_back({range.path, {tensors.begin() + range.begin, tensors.begin() + range.end}, range.bytes});
  }
  return files;
}

std::string index_path(const std::string& out) {
  return out + ".index.json";
}

std::string index_text(uint64_t total_bytes, const std::map<std::string, std::string>& files) {
  nlohmann::ordered_json index{{"metadata", {{"total_size", total_bytes}}}, {"weight_map", files}};
  return dump_json(index, 2) + "\n";
}

std::string index_text(const std::vector<WeightFile>& files) {
  uint64_t total = 0;
  std::map<std::string, std::string> names;
  for (const auto& file : files) {
    total += file.bytes;
    const std::string name = std::filesystem::path(file.path).filename().string();
    for (const SavedTensor* tensor : file.tensors) {
      for (const auto& each : tensor->all_names()) names[each] = name;
    }
  }
  return index_text(total, names);
}

}  // namespace dslaunch::runtime
