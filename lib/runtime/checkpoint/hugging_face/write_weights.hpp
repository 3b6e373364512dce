// Writes planned tensors as a safetensors file. One thread.
#pragma once
#include <span>
#include <string>

#include "runtime/checkpoint/hugging_face/weight_plan.hpp"
#include "runtime/checkpoint/weight_stream.hpp"

namespace dslaunch::runtime::hugging_face {

uint64_t bytes_of(const WeightStream& weights, const OutputTensor& tensor);

// Within the stream's memory limit, and flushed. Throws UserError(65) when a part of the checkpoint is missing or
// damaged, or when a tensor that must be rearranged exceeds the limit; SystemError (73, 74).
void write_weights(WeightStream& weights, std::span<const OutputTensor> tensors, const std::string& path);

}  // namespace dslaunch::runtime::hugging_face
