#include "runtime/engine/load_model.hpp"

namespace dslaunch::runtime {

std::unique_ptr<ModelSource> load_model(const std::string& path, const config::JobConfig& config) {
  return load_script_model(path, config.units, graph_passes(config.kernels));
}

GraphPassOptions graph_passes(const config::Kernels& kernels) {
  return {kernels.cross_entropy, kernels.layer_norm, kernels.bias_gradient};
}

}  // namespace dslaunch::runtime
