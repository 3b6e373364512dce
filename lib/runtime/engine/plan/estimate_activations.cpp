#include "runtime/engine/plan/estimate_activations.hpp"

#include <algorithm>
#include <numeric>
#include <vector>

#include "runtime/engine/step/sharding_choice.hpp"

namespace dslaunch::runtime::engine::plan {

int64_t estimate_activations(const ParameterTable& table, const config::JobConfig& config, int64_t num_positions,
                             at::ScalarType compute_dtype) {
  if (config.pipeline.stages > 1) return 0;
  // What lies between the matrices: each tensor rank has its positions of it.
  const int64_t sharing = config.tensor_parallel.sequence_parallel ? config.tensor_parallel.size : 1;
  std::vector<int64_t> widths(table.units.size());  // by unit: elements that a position leaves
  for (const auto& parameter : table.parameters) {
    int64_t& width = widths.at(static_cast<size_t>(parameter.unit));
    if (parameter.shape.size() == 2) width += parameter.shape[0] + parameter.shape[1];
    if (parameter.shape.size() == 1 && is_weight(parameter.name)) width += parameter.shape[0] / sharing;
  }
  int64_t width = std::accumulate(widths.begin(), widths.end(), int64_t{0});
  if (config.recomputation.enabled && widths.size() > 1) {
    const int64_t largest = *std::max_element(widths.begin() + 1, widths.end());
    width = widths[0] + largest + step::width_of(table) / sharing * static_cast<int64_t>(widths.size() - 1);
  }
  return width * num_positions * static_cast<int64_t>(c10::elementSize(compute_dtype));
}

int64_t count_positions(const setup::TrainingData& data, int64_t micro_batch) {
  if (!data.train) return 0;
  int64_t most = 1;
  for (const size_t input : data.train_arrays.inputs) {
    const auto& array = data.train->arrays().at(input);
    if (array.sample_shape.size() >= 3) continue;  // a picture: the model makes of its pixels what it likes
    const int64_t features = at::isFloatingType(array.dtype) && !array.sample_shape.empty()
                                 ? std::max<int64_t>(1, array.sample_shape.back())
                                 : 1;
    most = std::max(most, array.sample_numel() / features);
  }
  if (const auto& batches = data.schedule.batches) {  // samples are cut to the longest of their micro batch
    const auto& batch = data.loader.batch;
    return batches->max_positions({batch.micro_batch, batch.accumulation, data.loader.data_parallel});
  }
  return most * micro_batch;
}

}  // namespace dslaunch::runtime::engine::plan
