#include "runtime/engine/bench/recorded_inputs.hpp"

#include <nlohmann/json.hpp>

#include "base/error.hpp"
#include "base/format.hpp"

namespace dslaunch::runtime::engine::bench {
namespace {

using Json = nlohmann::json;

config::ArraySpec array_of(const Json& json) {
  config::ArraySpec array;
  array.name = json.at("name").get<std::string>();
  array.shape = json.at("shape").get<std::vector<int64_t>>();
  array.dtype = json.at("dtype").get<std::string>();
  array.low = json.at("low").get<double>();
  array.high = json.at("high").get<double>();
  return array;
}

}  // namespace

std::vector<config::ArraySpec> recorded_inputs(const std::string& metadata, const std::string& path) {
  std::vector<config::ArraySpec> inputs;
  if (metadata.empty()) return inputs;
  try {
    const Json json = Json::parse(metadata);
    if (!json.contains("inputs")) return inputs;
    for (const Json& each : json.at("inputs")) inputs.push_back(array_of(each));
  } catch (const Json::exception&) {
    throw UserError(ExitCode::kBadInput,
                    fmt::format("'{}' has damaged metadata: its \"inputs\" are not a list of arrays; "
                                "give samples with --data",
                                path));
  }
  return inputs;
}

std::string describe_inputs(const std::vector<config::ArraySpec>& inputs) {
  std::vector<std::string> out;
  for (const auto& input : inputs) {
    const bool is_float = input.dtype.starts_with("float");
    out.push_back(fmt::format("{} ({}) {}{}", input.name, fmt::join(input.shape, ", "), input.dtype,
                              is_float ? std::string() : fmt::format(" below {}", input.high)));
  }
  return fmt::format("{}", fmt::join(out, ", "));
}

}  // namespace dslaunch::runtime::engine::bench
