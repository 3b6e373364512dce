#include "runtime/checkpoint/whole_weights.hpp"

#include <map>

#include "runtime/checkpoint/checkpoint_reader.hpp"
#include "runtime/checkpoint/content_hash.hpp"
#include "runtime/checkpoint/weight_stream.hpp"
#include "runtime/state/safetensors_writer.hpp"

namespace dslaunch::runtime {

CheckpointFile write_whole_weights(CheckpointReader& checkpoint, const WholeWeights& how, const std::string& folder,
                                   const std::string& name) {
  WeightStream weights(checkpoint, {.dtype = how.float_dtype});
  std::vector<TensorDescription> descriptions;
  std::map<std::string, const SavedTensor*> sources;
  for (const SavedTensor* tensor : weights.tensors()) {
    for (const auto& under : all_names(*tensor)) {
      descriptions.push_back({under, weights.dtype_of(*tensor), tensor->shape});
      sources[under] = tensor;
    }
  }
  CheckpointFile file{.name = name};
  ContentHash hash;
  SafetensorsWriter writer(folder + "/" + name, std::move(descriptions), {{"format", "pt"}},
                           [&](const void* data, size_t size) { hash.update(data, size); });
  for (const auto& description : writer.order()) {
    weights.read(*sources.at(description.name), [&](const at::Tensor& part) { writer.write_part(part); });
  }
  writer.finish(/*sync=*/true);
  file.bytes = writer.bytes_written();
  file.xxh3_128 = hash.hex();
  return file;
}

}  // namespace dslaunch::runtime
