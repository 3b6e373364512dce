#include "runtime/engine/bench/step_measurement.hpp"

#include <algorithm>

#include "runtime/telemetry/fragmentation.hpp"

namespace dslaunch::runtime::engine::bench {

double StepMeasurement::median_ms() const {
  auto sorted = step_ms;
  std::sort(sorted.begin(), sorted.end());
  const size_t half = sorted.size() / 2;
  return sorted.size() % 2 == 1 ? sorted[half] : (sorted[half - 1] + sorted[half]) / 2;
}

double StepMeasurement::min_ms() const {
  return *std::min_element(step_ms.begin(), step_ms.end());
}

double StepMeasurement::max_ms() const {
  return *std::max_element(step_ms.begin(), step_ms.end());
}

double StepMeasurement::fragmentation() const {
  return fragmentation_of(memory.allocated, memory.reserved).share;
}

}  // namespace dslaunch::runtime::engine::bench
