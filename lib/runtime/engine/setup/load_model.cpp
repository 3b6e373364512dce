#include "runtime/engine/setup/load_model.hpp"

#include "runtime/model/script/load_script_model.hpp"
#include "runtime/precision/precision_choice.hpp"

namespace dslaunch::runtime::engine::setup {

std::unique_ptr<model::Model> load_model(const std::string& path, const config::JobConfig& config, at::Device device) {
  const auto precision = precision::choose_precision(config.precision, config.keep_batch_norm, device);
  return model::script::load_script_model(path, config.units, {config.kernels, precision.compute_dtype});
}

}  // namespace dslaunch::runtime::engine::setup
