#include "runtime/engine/plan/estimate_activations.hpp"

#include <algorithm>

namespace dslaunch::runtime::engine::plan {

int64_t estimate_activations(const ParameterTable& table, const config::JobConfig& config, int64_t num_positions,
                             at::ScalarType compute_dtype) {
  if (config.recomputation.enabled || config.pipeline.stages > 1) return 0;
  int64_t width = 0;  // elements that a position leaves
  for (const auto& parameter : table.parameters) {
    if (parameter.shape.size() == 2) width += parameter.shape[0] + parameter.shape[1];
    if (parameter.shape.size() == 1 && is_weight(parameter.name)) width += parameter.shape[0];
  }
  return width * num_positions * static_cast<int64_t>(c10::elementSize(compute_dtype));
}

int64_t count_positions(const setup::TrainingData& data, int64_t micro_batch) {
  if (!data.train) return 0;
  int64_t most = 1;
  for (const size_t input : data.train_arrays.inputs) {
    const auto& array = data.train->arrays().at(input);
    const int64_t features = at::isFloatingType(array.dtype) && !array.sample_shape.empty()
                                 ? std::max<int64_t>(1, array.sample_shape.back())
                                 : 1;
    most = std::max(most, array.sample_numel() / features);
  }
  return most * micro_batch;
}

}  // namespace dslaunch::runtime::engine::plan
