#include "runtime/engine/setup/saved_tensors.hpp"

namespace dslaunch::runtime::engine::setup {

std::vector<SavedTensor> saved_tensors_of(const model::Model& model) {
  std::vector<SavedTensor> out;
  for (const auto& parameter : model.facts.table.parameters) {
    out.push_back({.name = parameter.name,
                   .shape = parameter.whole_shape(),
                   .dtype = parameter.dtype,
                   .trainable = parameter.trainable,
                   .aliases = parameter.aliases});
  }
  for (const auto& [name, value] : model.tensors.buffers()) {
    out.push_back({.name = name,
                   .shape = value.sizes().vec(),
                   .dtype = value.scalar_type(),
                   .trainable = false,
                   .is_buffer = true,
                   .aliases = {}});
  }
  return out;
}

}  // namespace dslaunch::runtime::engine::setup
