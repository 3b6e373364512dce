// Writes safetensors (safetensors_file.hpp) as a stream. One thread.
#pragma once
#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "runtime/state/output_file.hpp"

namespace dslaunch::runtime {

struct TensorDescription {
  std::string name;
  at::ScalarType dtype = at::kFloat;
  std::vector<int64_t> shape;
};

// Writes the header at once and then the tensors in order(): widest elements first, so that every tensor is aligned to
// its element size without gaps, which other readers refuse. The data starts at a multiple of 8.
class SafetensorsWriter {
 public:
  using Observer = std::function<void(const void* data, size_t size)>;

  // `observer` sees every byte that is written, in order (for a hash). Throws SystemError 73 or 74.
  SafetensorsWriter(const std::string& path, std::vector<TensorDescription> tensors,
                    const std::map<std::string, std::string>& metadata = {}, Observer observer = {});
  const std::vector<TensorDescription>& order() const { return tensors_; }
  // The next tensor of order(): contiguous, CPU, of that dtype and size; any shape. Throws SystemError(74).
  void write(const at::Tensor& values);
  // A part of the next tensor of order(), front to back; the tensor is complete when all of its elements have been
  // written.
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

}  // namespace dslaunch::runtime
