// Safetensors: an 8-byte little-endian length, a JSON header of that length, then the tensors' bytes.
// Reading maps the file and copies nothing; a SafetensorsFile is immutable and may be shared among threads. Writing
// streams, one thread.
#pragma once
#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "runtime/state/mapped_file.hpp"
#include "runtime/state/output_file.hpp"

namespace dslaunch::runtime {

struct SafetensorsEntry {
  std::string name;
  at::ScalarType dtype = at::kFloat;
  std::vector<int64_t> shape;
  size_t begin = 0, end = 0;  // bytes from the start of the file
};

class SafetensorsFile {
 public:
  // Throws UserError: 66 when the file cannot be read, 65 with the reason when it is not sound (truncated, bad JSON,
  // unknown dtype, sizes that contradict the shape, overlapping tensors). A sound file's entries lie inside it.
  explicit SafetensorsFile(const std::string& path, const std::string& what = "safetensors file");

  const std::string& path() const { return file_->path(); }
  const std::shared_ptr<const MappedFile>& file() const { return file_; }
  const std::vector<SafetensorsEntry>& entries() const { return entries_; }  // in the order of their bytes
  const std::map<std::string, std::string>& metadata() const { return metadata_; }
  const SafetensorsEntry* find(const std::string& name) const;  // null when absent
  // Over the mapping, to be read only.
  at::Tensor tensor(const SafetensorsEntry& entry) const;

 private:
  std::shared_ptr<const MappedFile> file_;
  std::vector<SafetensorsEntry> entries_;
  std::map<std::string, size_t> index_;
  std::map<std::string, std::string> metadata_;
};

struct TensorDescription {
  std::string name;
  at::ScalarType dtype = at::kFloat;
  std::vector<int64_t> shape;
};

// Writes the header at once and then the tensors in order(): widest elements first, so that every tensor is aligned to
// its element without gaps, which other readers refuse. The data starts at a multiple of 8.
class SafetensorsWriter {
 public:
  using Observer = std::function<void(const void* data, size_t size)>;

  // `observer` sees every byte that is written, in order (for a hash). Throws SystemError 73 or 74.
  SafetensorsWriter(const std::string& path, std::vector<TensorDescription> tensors,
                    const std::map<std::string, std::string>& metadata = {}, Observer observer = {});
  const std::vector<TensorDescription>& order() const { return tensors_; }
  // The next tensor of order(): contiguous, CPU, that dtype and size; any shape. Throws SystemError(74).
  void write(const at::Tensor& values);
  // A part of the next tensor of order(), front to back; the tensor is done when all of its elements came.
  void write_part(const at::Tensor& values);
  // All tensors must have been written. `sync`: flushed to the device. Throws SystemError(74).
  void finish(bool sync);
  uint64_t bytes_written() const { return bytes_written_; }

 private:
  void put(const void* data, size_t size);

  std::vector<TensorDescription> tensors_;
  Observer observer_;
  OutputFile file_;
  size_t next_ = 0;
  uint64_t part_numel_ = 0;  // of the next tensor, written already
  uint64_t bytes_written_ = 0;
};

// "F32" and so on; empty for a dtype that the format does not know.
std::string safetensors_dtype_name(at::ScalarType dtype);

}  // namespace dslaunch::runtime
