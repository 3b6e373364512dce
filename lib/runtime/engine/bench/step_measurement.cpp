#include "runtime/engine/bench/step_measurement.hpp"

#include <algorithm>

#include "runtime/telemetry/fragmentation.hpp"

namespace dslaunch::runtime::engine::bench {

namespace {

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  const size_t half = values.size() / 2;
  return values.size() % 2 == 1 ? values[half] : (values[half - 1] + values[half]) / 2;
}

}  // namespace

double StepMeasurement::median_ms() const {
  return median(step_ms);
}

double StepMeasurement::median_held_ms() const {
  return median(held_ms);
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
