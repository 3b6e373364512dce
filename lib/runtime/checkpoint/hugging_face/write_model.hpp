// A checkpoint as a directory that from_pretrained of transformers or peft loads, without Python. One thread.
#pragma once
#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "runtime/checkpoint/weight_files.hpp"

namespace dslaunch::runtime::hugging_face {

struct WriteOptions {
  std::string checkpoint;             // a checkpoint, or a directory of checkpoints (then the newest)
  std::string out;                    // a directory that does not exist or is empty
  std::optional<std::string> source;  // where the tokenizer's files are; empty: where the model came from
  bool merge_lora = false;            // the whole model with its adapter in the weights; else the adapter alone
  at::ScalarType dtype = at::kFloat;  // of floating-point tensors
  uint64_t max_memory_bytes = uint64_t{1} << 30;
  uint64_t max_shard_bytes = 5'000'000'000;  // beyond this, several files and an index
  // Called before anything is written, with the temporary files and then the directory.
  std::function<void(const std::vector<std::string>& unfinished)> before_writing;
};

// Returns the files. config.json (of an adapter adapter_config.json) appears last: without it no directory is loaded.
// Logs a warning when the source is not here, so that its tokenizer is missing. Throws UserError: 64 for --merge_lora
// without an adapter, 65 for a model that is not from Hugging Face and for names that do not match, 66, 73 for a
// directory that is not empty; SystemError 73, 74.
WrittenWeights write_model(const WriteOptions& options);

}  // namespace dslaunch::runtime::hugging_face
