// Whole weights of a checkpoint, read front to back in chunks, so that memory stays within a limit however large a
// tensor or a shard is. One thread.
#pragma once
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "runtime/checkpoint/checkpoint_reader.hpp"
#include "runtime/state/safetensors_writer.hpp"

namespace dslaunch::runtime {

// Throws UserError(64) if a limit is so low that the chunks would become too small.
void require_enough_memory(uint64_t max_memory_bytes);

class WeightStream {
 public:
  struct Options {
    uint64_t max_memory_bytes = uint64_t{1} << 30;  // of buffers and mapped pages together
    std::optional<at::ScalarType> dtype;            // of floating-point tensors; empty: the model's own
    bool exclude_frozen = false;
  };
  WeightStream(CheckpointReader& checkpoint, Options options);

  // The parameters and buffers to write.
  const std::vector<const SavedTensor*>& tensors() const { return tensors_; }
  at::ScalarType dtype_of(const SavedTensor& tensor) const;
  uint64_t bytes_of(const SavedTensor& tensor) const;
  // Calls `take` with one part after the other: 1-D, contiguous, CPU, of dtype_of(). A part is invalid after the call.
  using Take = std::function<void(const at::Tensor& part)>;
  void read(const SavedTensor& tensor, const Take& take);
  // The same of the flattened tensor's elements [begin, end), in `dtype`.
  void read(const SavedTensor& tensor, at::ScalarType dtype, int64_t begin, int64_t end, const Take& take);
  uint64_t max_memory_bytes() const { return options_.max_memory_bytes; }

 private:
  CheckpointReader& checkpoint_;
  const Options options_;
  std::vector<const SavedTensor*> tensors_;
};

// Writes these tensors of the stream as one file and flushes it; tied parameters appear under each of their names.
// `observer` sees all bytes in order. Returns the number of bytes. Throws UserError(65) when a part is missing or
// damaged, SystemError (73, 74).
uint64_t write_safetensors(WeightStream& weights, const std::vector<const SavedTensor*>& tensors,
                           const std::string& path, SafetensorsWriter::Observer observer = {});

}  // namespace dslaunch::runtime
