#include "runtime/checkpoint/weight_files.hpp"

#include <filesystem>
#include <nlohmann/json.hpp>

#include "base/dump_json.hpp"
#include "base/format.hpp"

namespace dslaunch::runtime {

std::vector<WeightFile> plan_weight_files(const std::string& out, const std::vector<const SavedTensor*>& tensors,
                                          const std::function<uint64_t(const SavedTensor&)>& bytes_of,
                                          uint64_t max_bytes) {
  std::vector<WeightFile> files(1);
  for (const SavedTensor* tensor : tensors) {
    const uint64_t bytes = bytes_of(*tensor);
    if (max_bytes > 0 && !files.back().tensors.empty() && files.back().bytes + bytes > max_bytes) files.emplace_back();
    files.back().tensors.push_back(tensor);
    files.back().bytes += bytes;
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

std::string index_path(const std::string& out) {
  return out + ".index.json";
}

std::string index_text(const std::vector<WeightFile>& files) {
  uint64_t total = 0;
  nlohmann::json names = nlohmann::json::object();  // sorts its keys
  for (const auto& file : files) {
    total += file.bytes;
    const std::string name = std::filesystem::path(file.path).filename().string();
    for (const SavedTensor* tensor : file.tensors) {
      names[tensor->name] = name;
      for (const auto& alias : tensor->aliases) names[alias] = name;
    }
  }
  nlohmann::ordered_json index{{"metadata", {{"total_size", total}}}, {"weight_map", names}};
  return dump_json(index, 2) + "\n";
}

}  // namespace dslaunch::runtime
