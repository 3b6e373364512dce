// Reads safetensors: an 8-byte little-endian length, a JSON header of that length, then the tensors' bytes. The file is
// mapped and nothing is copied. Immutable, may be shared among threads.
#pragma once
#include <ATen/core/Tensor.h>

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "runtime/state/mapped_file.hpp"

namespace dslaunch::runtime {

// The name of an element type in the format: "F32" and so on; null for a dtype that the format does not know.
const char* safetensors_dtype_name(at::ScalarType dtype);

struct SafetensorsEntry {
  std::string name;
  at::ScalarType dtype = at::kFloat;
  std::vector<int64_t> shape;
  size_t begin = 0, end = 0;  // bytes from the start of the file
};

class SafetensorsFile {
 public:
  // Throws UserError: 66 when the file cannot be read, 65 with the reason when it is invalid (truncated, bad JSON,
  // unknown dtype, sizes that contradict the shape, overlapping tensors). Entries of a valid file lie inside it.
  explicit SafetensorsFile(const std::string& path, const std::string& what = "safetensors file");

  const std::string& path() const { return file_->path(); }
  const std::shared_ptr<const MappedFile>& file() const { return file_; }
  const std::vector<SafetensorsEntry>& entries() const { return entries_; }  // in the order of their bytes
  const std::map<std::string, std::string>& metadata() const { return metadata_; }
  const SafetensorsEntry* find(const std::string& name) const;  // null when absent
  // A view of the mapping; read-only.
  at::Tensor tensor(const SafetensorsEntry& entry) const;

 private:
  std::shared_ptr<const MappedFile> file_;
  std::vector<SafetensorsEntry> entries_;
  std::map<std::string, size_t> index_;
  std::map<std::string, std::string> metadata_;
};

}  // namespace dslaunch::runtime
