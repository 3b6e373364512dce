// Which tensors a directory of Hugging Face gets from a checkpoint, under which names. Pure.
#pragma once
#include <optional>
#include <string>
#include <vector>

#include "runtime/checkpoint/checkpoint_reader.hpp"
#include "runtime/state/hugging_face_facts.hpp"

namespace dslaunch::runtime::hugging_face {

// LoRA matrices that are added to a weight.
struct MergedPair {
  const SavedTensor* a = nullptr;  // [rank, in]
  const SavedTensor* b = nullptr;  // [out, rank]
  double scaling = 1;
  bool transposed = false;
};

struct OutputTensor {
  std::string name;  // in the file
  std::vector<int64_t> shape;
  const SavedTensor* source = nullptr;
  HuggingFacePiece piece;  // of the source; its name is `name`
  std::optional<MergedPair> merged;
};

// The files of the whole model; with `merge` its adapter is part of the weights, otherwise it is left out. Throws
// UserError(65) if names or shapes of checkpoint and record differ, for tensors that the record does not explain, and
// for adapters that cannot be merged.
std::vector<OutputTensor> plan_model(const HuggingFaceFacts& facts, const CheckpointReader& checkpoint, bool merge);
// adapter_model.safetensors. Requires facts.adapter.
std::vector<OutputTensor> plan_adapter(const HuggingFaceFacts& facts, const CheckpointReader& checkpoint);

}  // namespace dslaunch::runtime::hugging_face
