#include <algorithm>
#include <regex>
#include <set>
#include <string_view>

#include "base/error.hpp"
#include "base/format.hpp"
#include "runtime/model/stages/layer_probe.hpp"

namespace dslaunch::runtime::model::stages {
namespace {

constexpr std::string_view kType = "type:";

[[noreturn]] void refuse(const std::string& what) {
  throw UserError(ExitCode::kBadInput, what);
}

// Blocks alone count where there are enough of them: embeddings, norms and heads go with their neighbours.
void count_layers(std::vector<PlannedLayer>& layers, int num_stages) {
  const auto num_blocks = std::count_if(layers.begin(), layers.end(), [](const auto& layer) { return layer.is_block; });
  for (auto& layer : layers) layer.cost = num_blocks < num_stages || layer.is_block ? 1 : 0;
}

void count_type(std::vector<PlannedLayer>& layers, const std::string& pattern) {
  std::regex expression;
  try {
    expression.assign(pattern, std::regex::ECMAScript | std::regex::icase);
  } catch (const std::regex_error&) {
    refuse(fmt::format("pipeline.partition 'type:{}': not a regular expression", pattern));
  }
  std::set<std::string> classes;
  bool any = false;
  for (auto& layer : layers) {
    classes.insert(layer.class_name);
    layer.cost = std::regex_search(layer.class_name, expression) ? 1 : 0;
    any |= layer.cost > 0;
  }
  if (!any) {
    refuse(fmt::format("pipeline.partition 'type:{}': no layer has such a class (the model's layers are of: {})",
                       pattern, fmt::join(classes, ", ")));
  }
}

void count_time(std::vector<PlannedLayer>& layers, const StageOptions& options, std::vector<std::string>& notes) {
  if (!options.layer_costs.empty()) {
    DSL_CHECK(options.layer_costs.size() == layers.size(), "one cost for each layer");
    for (size_t i = 0; i < layers.size(); ++i) layers[i].cost = options.layer_costs[i];
    return;
  }
  for (size_t i = 0; i < layers.size(); ++i) {
    layers[i].cost =
        static_cast<double>(options.measurement ? options.measurement->nanoseconds.at(i) : layers[i].num_parameters);
  }
  if (!options.measurement) {
    notes.push_back(fmt::format(
        "pipeline stages are balanced by parameters, because the times of their layers are not measured{}{}",
        options.unmeasured.empty() ? "" : ": ", options.unmeasured));
  }
}

}  // namespace

std::string set_layer_costs(std::vector<PlannedLayer>& layers, const StageOptions& options, int num_stages,
                            std::vector<std::string>& notes) {
  const auto& method = options.partition;
  if (!options.first_layers.empty()) {
    count_layers(layers, num_stages);
    return "layers";
  }
  if (method == "uniform") {
    count_layers(layers, num_stages);
  } else if (method == "parameters") {
    for (auto& layer : layers) layer.cost = static_cast<double>(layer.num_trainable);
  } else if (method == "time" || method == "best") {
    count_time(layers, options, notes);
    return "time";
  } else if (method.substr(0, kType.size()) == kType) {
    count_type(layers, method.substr(kType.size()));
  } else {
    refuse(fmt::format("pipeline.partition '{}': expected best, time, uniform, parameters or type:REGEX", method));
  }
  return method;
}

}  // namespace dslaunch::runtime::model::stages
