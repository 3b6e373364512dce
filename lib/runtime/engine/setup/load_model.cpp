#include "runtime/engine/setup/load_model.hpp"

#include "runtime/model/script/load_script_model.hpp"
#include "runtime/precision/precision_choice.hpp"

namespace dslaunch::runtime {

std::unique_ptr<Model> load_model(const std::string& path, const config::JobConfig& config, at::Device device) {
  auto passes = graph_passes(config.kernels);
  passes.compute_dtype = precision::choose_precision(config.precision, config.keep_batch_norm, device).compute_dtype;
  return load_script_model(path, config.units, passes);
}

GraphPassOptions graph_passes(const config::Kernels& kernels) {
  return {kernels.cross_entropy, kernels.layer_norm, kernels.bias_gradient};
}

}  // namespace dslaunch::runtime
