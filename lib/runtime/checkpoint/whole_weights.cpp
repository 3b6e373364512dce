#include "runtime/checkpoint/whole_weights.hpp"

#include "runtime/checkpoint/checkpoint_reader.hpp"
#include "runtime/checkpoint/content_hash.hpp"
#include "runtime/checkpoint/weight_stream.hpp"

namespace dslaunch::runtime {

CheckpointFile write_whole_weights(CheckpointReader& checkpoint, const WholeWeights& how, const std::string& folder,
                                   const std::string& name) {
  WeightStream weights(checkpoint, {.dtype = how.float_dtype});
  ContentHash hash;
  const uint64_t bytes = write_safetensors(weights, weights.tensors(), folder + "/" + name,
                                           [&](const void* data, size_t size) { hash.update(data, size); });
  return {name, bytes, hash.hex(), ""};
}

}  // namespace dslaunch::runtime
