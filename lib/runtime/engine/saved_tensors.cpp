#include "runtime/engine/saved_tensors.hpp"

namespace dslaunch::runtime {

std::vector<SavedTensor> saved_tensors_of(const ModelSource& model) {
  std::vector<SavedTensor> out;
  for (const auto& parameter : model.table().parameters) {
    out.push_back({parameter.name, parameter.shape, parameter.dtype, parameter.trainable, false, parameter.aliases});
  }
  for (const auto& [name, value] : model.buffers()) {
    out.push_back({name, value.sizes().vec(), value.scalar_type(), false, true, {}});
  }
  return out;
}

}  // namespace dslaunch::runtime
