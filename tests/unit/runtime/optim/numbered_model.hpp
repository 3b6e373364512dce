// A small model whose start values and gradients are made by integer arithmetic, for optimizers against numbers that
// scripts of tests/oracle have made from the same ones.
#pragma once
#include <ATen/ATen.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "config/load.hpp"
#include "runtime/state/parameter_table.hpp"
#include "runtime/state/partition.hpp"

namespace dslaunch::test {

using nlohmann::json;

// The parameters in three units: those outside blocks, and two blocks.
struct NumberedModel {
  runtime::ParameterTable table;
  std::vector<int64_t> first;  // where a parameter begins among the numbers
  int64_t numel = 0;
};

inline NumberedModel make_numbered_model(const json& parameters) {
  NumberedModel model;
  model.table.units = {{"", {}}, {"blocks.0", {}}, {"blocks.1", {}}};
  for (const auto& entry : parameters) {
    runtime::ParameterInfo info;
    info.name = entry["name"];
    info.shape = entry["shape"].get<std::vector<int64_t>>();
    info.numel = c10::multiply_integers(info.shape);
    info.unit = info.name.rfind("blocks.0", 0) == 0 ? 1 : info.name.rfind("blocks.1", 0) == 0 ? 2 : 0;
    model.table.units[static_cast<size_t>(info.unit)].parameters.push_back(
        static_cast<int>(model.table.parameters.size()));
    model.first.push_back(model.numel);
    model.numel += info.numel;
    model.table.parameters.push_back(std::move(info));
  }
  return model;
}

inline float start_value(int64_t i) {
  return static_cast<float>((i * 53) % 997 - 498) / 256.0F;
}
inline float gradient_value(int64_t i, int64_t step) {
  return static_cast<float>((i * 37 + step * 101 + i * step * 13) % 1009 - 504) / 512.0F;
}

inline config::JobConfig load_section(const json& section) {
  const auto loaded = config::load_text(section.dump(), "case", config::Format::kHjson);
  config::throw_if_bad(loaded);
  return loaded.config;
}

// The largest difference within a parameter over its largest value, the worst parameter counting.
inline double worst_difference(const NumberedModel& model, const at::Tensor& got, const at::Tensor& expected) {
  double worst = 0.0;
  for (size_t i = 0; i < model.first.size(); ++i) {
    const int64_t numel = model.table.parameters[i].numel;
    if (numel == 0) continue;
    const auto want = expected.narrow(0, model.first[i], numel);
    const auto difference = (got.narrow(0, model.first[i], numel).to(at::kDouble) - want).abs().max().item<double>();
    worst = std::max(worst, difference / want.abs().max().item<double>());
  }
  return worst;
}

}  // namespace dslaunch::test
