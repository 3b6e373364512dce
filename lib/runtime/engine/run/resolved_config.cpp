#include "runtime/engine/run/resolved_config.hpp"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/format.hpp"

namespace dslaunch::runtime::engine::run {
namespace {

using Json = nlohmann::ordered_json;

void fill(Json& config, const char* path, const Json& value) {
  const Json::json_pointer at(path);
  if (config.contains(at) && config.at(at) == "auto") config.at(at) = value;
}

}  // namespace

std::string with_solved_settings(const std::string& resolved, const SolvedSettings& solved) {
  Json config = Json::parse(resolved);
  fill(config, "/bf16/enabled", solved.compute_dtype == at::kBFloat16);
  fill(config, "/fp16/enabled", solved.compute_dtype == at::kHalf);
  if (solved.total_steps > 0) fill(config, "/scheduler/params/total_num_steps", solved.total_steps);
  const Json::json_pointer partition("/pipeline/partition");
  const bool is_measured =
      config.contains(partition) && (config.at(partition) == "best" || config.at(partition) == "time");
  if (is_measured && !solved.first_layers.empty()) {
    config.at(partition) = fmt::format("layers:{}", fmt::join(solved.first_layers, ","));
  }
  fill(config, "/zero_optimization/reduce_bucket_size", solved.zero.reduce_bucket_size.value());
  fill(config, "/zero_optimization/stage3_prefetch_bucket_size", solved.zero.prefetch_bucket_size.value());
  fill(config, "/zero_optimization/stage3_param_persistence_threshold",
       solved.zero.param_persistence_threshold.value());
  return config.dump(2);
}

std::vector<std::pair<std::string, std::string>> values_of(const std::string& resolved,
                                                           const std::vector<std::string>& keys) {
  const Json config = Json::parse(resolved);
  std::vector<std::pair<std::string, std::string>> out;
  for (const auto& key : keys) {
    std::string path = "/" + key;
    std::replace(path.begin(), path.end(), '.', '/');
    const Json::json_pointer at(path);
    if (!config.contains(at) || config.at(at).is_null() || config.at(at) == "auto") continue;
    out.emplace_back(key, config.at(at).is_string() ? config.at(at).get<std::string>() : config.at(at).dump());
  }
  return out;
}

}  // namespace dslaunch::runtime::engine::run
