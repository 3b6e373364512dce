#include "runtime/checkpoint/weight_stream.hpp"

#include <ATen/ops/empty.h>

#include <algorithm>
#include <map>

#include "base/error.hpp"
#include "base/format.hpp"

namespace dslaunch::runtime {
namespace {

// The widest element, as mapped and as written, and the same again for the memory that the kernel maps around it.
constexpr uint64_t kBytesPerElement = 2 * (sizeof(double) + sizeof(double));
constexpr int64_t kMaxChunk = 16 << 20;  // larger chunks are not faster
constexpr uint64_t kMinMemory = 16'000'000;

}  // namespace

void require_enough_memory(uint64_t max_memory_bytes) {
  if (max_memory_bytes >= kMinMemory) return;
  throw UserError(ExitCode::kUsage, fmt::format("--max_memory is {} bytes, but at least {} MB are needed",
                                                max_memory_bytes, kMinMemory / 1'000'000));
}

WeightStream::WeightStream(CheckpointReader& checkpoint, Options options) : checkpoint_(checkpoint), options_(options) {
  for (const auto& tensor : checkpoint.metadata().parameters) {
    if (options_.exclude_frozen && !tensor.trainable && !tensor.is_buffer) continue;
    tensors_.push_back(&tensor);
  }
}

at::ScalarType WeightStream::dtype_of(const SavedTensor& tensor) const {
  return options_.dtype && at::isFloatingType(tensor.dtype) ? *options_.dtype : tensor.dtype;
}

uint64_t WeightStream::bytes_of(const SavedTensor& tensor) const {
  return static_cast<uint64_t>(tensor.numel()) * c10::elementSize(dtype_of(tensor));
}

void WeightStream::read(const SavedTensor& tensor, const Take& take) {
  read(tensor, dtype_of(tensor), 0, tensor.numel(), take);
}

void WeightStream::read(const SavedTensor& tensor, at::ScalarType dtype, int64_t begin, int64_t end, const Take& take) {
  const auto chunk =
      std::clamp<int64_t>(static_cast<int64_t>(options_.max_memory_bytes / kBytesPerElement), 1, kMaxChunk);
  at::Tensor buffer = at::empty({std::min(chunk, end - begin)}, dtype);
  // An empty range has one part without elements.
  for (int64_t at = begin; at == begin || at < end; at += chunk) {
    at::Tensor part = buffer.narrow(0, 0, std::min(chunk, end - at));
    if (part.numel() > 0) checkpoint_.read_into(tensor.name, weight_state(tensor), at, part);
    checkpoint_.drop_pages();
    take(part);
  }
}

uint64_t write_safetensors(WeightStream& weights, const std::vector<const SavedTensor*>& tensors,
                           const std::string& path, SafetensorsWriter::Observer observer) {
  std::vector<TensorDescription> descriptions;
  std::map<std::string, const SavedTensor*> sources;
  for (const SavedTensor* tensor : tensors) {
    for (const auto& name : tensor->all_names()) {
      descriptions.push_back({name, weights.dtype_of(*tensor), tensor->shape});
      sources[name] = tensor;
    }
  }
  SafetensorsWriter writer(path, std::move(descriptions), {{"format", "pt"}}, std::move(observer));
  for (const auto& description : writer.order()) {
    weights.read(*sources.at(description.name), [&](const at::Tensor& part) { writer.write_part(part); });
  }
  writer.finish(/*sync=*/true);
  return writer.bytes_written();
}

}  // namespace dslaunch::runtime
