// Assigns weights to output files when one file would be too large, and writes the index beside them: names and layout
// as zero_to_fp32 and Hugging Face use them. Pure.
#pragma once
#include <cstdint>
#include <functional>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "runtime/checkpoint/checkpoint_metadata.hpp"

namespace dslaunch::runtime {

struct WeightFile {
  std::string path;  // "model-00001-of-00003.safetensors" beside the output, or the output itself
  std::vector<const SavedTensor*> tensors;
  uint64_t bytes = 0;
};

// What was written, and of which checkpoint.
struct WrittenWeights {
  std::vector<std::string> files;
  std::string checkpoint;
  int64_t step = 0;
};

// Which of consecutive tensors one file has.
struct FileRange {
  std::string path;
  size_t begin = 0, end = 0;
  uint64_t bytes = 0;
};

// `bytes`: of each tensor, in order. A file is closed when the next tensor would exceed `max_bytes` (0: no limit), so
// only a tensor that is larger itself makes a larger file.
std::vector<FileRange> plan_file_ranges(const std::string& out, std::span<const uint64_t> bytes, uint64_t max_bytes);
// The same for tensors of a checkpoint.
std::vector<WeightFile> plan_weight_files(const std::string& out, const std::vector<const SavedTensor*>& tensors,
                                          const std::function<uint64_t(const SavedTensor&)>& bytes_of,
                                          uint64_t max_bytes);

std::string index_path(const std::string& out);  // "model.safetensors.index.json"
// {"metadata": {"total_size": …}, "weight_map": {name: file}}, all names, sorted.
std::string index_text(const std::vector<WeightFile>& files);
// `files`: name of a file by name of a tensor.
std::string index_text(uint64_t total_bytes, const std::map<std::string, std::string>& files);

}  // namespace dslaunch::runtime
