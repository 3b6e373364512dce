#include "runtime/model/interface/stage_plan.hpp"

#include <algorithm>

#include "base/error.hpp"
#include "base/format.hpp"
#include "base/quantity.hpp"

namespace dslaunch::runtime::model {
namespace {

std::string describe_carried(const std::vector<CarriedInfo>& carried) {
  int64_t bytes = 0;
  bool is_known = true;
  size_t num_numbers = 0;
  std::vector<std::string> origins;
  for (const auto& value : carried) {
    if (value.is_number) {
      num_numbers += 1;
      continue;
    }
    is_known = is_known && value.bytes.has_value();
    bytes += value.bytes.value_or(0);
    if (std::find(origins.begin(), origins.end(), value.origin) == origins.end()) origins.push_back(value.origin);
  }
  const size_t num_tensors = carried.size() - num_numbers;
  std::string out = fmt::format("receives {} tensor{}", num_tensors, num_tensors == 1 ? "" : "s");
  if (is_known) out += ", " + quantity(bytes, "B");
  if (num_numbers > 0) out += fmt::format(", {} number{}", num_numbers, num_numbers == 1 ? "" : "s");
  if (!origins.empty()) out += fmt::format(" ({})", fmt::join(origins, ", "));
  return out;
}

}  // namespace

std::vector<int64_t> encode(const LayerMeasurement& measurement) {
  std::vector<int64_t> out;
  for (const auto* list : {&measurement.nanoseconds, &measurement.flops, &measurement.carried_bytes}) {
    out.push_back(std::ssize(*list));
    out.insert(out.end(), list->begin(), list->end());
  }
  return out;
}

LayerMeasurement decode_measurement(const std::vector<int64_t>& message) {
  LayerMeasurement out;
  auto next = message.begin();
  for (auto* list : {&out.nanoseconds, &out.flops, &out.carried_bytes}) {
    DSL_CHECK(next != message.end() && *next >= 0 && *next < message.end() - next,
              "a measurement of layers ends early");
    const auto count = *next++;
    list->assign(next, next + count);
    next += count;
  }
  DSL_CHECK(next == message.end(), "a measurement of layers is too long");
  return out;
}

double StagePlan::imbalance() const {
  double sum = 0, largest = 0;
  for (const auto& stage : stages) {
    sum += stage.cost;
    largest = std::max(largest, stage.cost);
  }
  return sum > 0 ? largest * static_cast<double>(stages.size()) / sum : 1;
}

std::vector<std::string> describe_stages(const StagePlan& plan) {
  std::vector<std::string> out;
  double total = 0;
  for (const auto& stage : plan.stages) total += stage.cost;
  for (size_t i = 0; i < plan.stages.size(); ++i) {
    const auto& stage = plan.stages[i];
    const auto& first = plan.layers[stage.first_layer];
    const auto& last = plan.layers[stage.first_layer + stage.num_layers - 1];
    std::string line = fmt::format(
        "stage {}: {}", i,
        stage.num_layers == 1 ? fmt::format("layer '{}'", first.path)
                              : fmt::format("{} layers, '{}' to '{}'", stage.num_layers, first.path, last.path));
    line += fmt::format(" | {} parameters", with_separators(stage.num_parameters));
    if (stage.flops) line += fmt::format(" | {} forward", quantity(*stage.flops, "FLOP"));
    if (total > 0) line += fmt::format(" | {:.0f} % of the cost", 100 * stage.cost / total);
    if (i > 0) line += " | " + describe_carried(stage.carried_in);
    out.push_back(std::move(line));
  }
  for (const auto& tied : plan.tied) {
    out.push_back(fmt::format("tied: '{}' is held by stages {}", tied.name, fmt::join(tied.stages, ", ")));
  }
  return out;
}

}  // namespace dslaunch::runtime::model
