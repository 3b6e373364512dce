#include "runtime/telemetry/operator_scopes.hpp"

#include <ATen/core/function_schema.h>

#include <string_view>

namespace dslaunch::runtime {

std::string readable_name(std::string name) {
  constexpr std::string_view kClass = "torch::autograd::CppNode<";
  const size_t begin = name.find(kClass), end = name.rfind('>');
  if (begin == std::string::npos || end == std::string::npos) return name;
  const size_t last_part = name.rfind("::", end) + 2;
  return name.substr(0, begin) + name.substr(last_part, end - last_part) + "Backward";
}

c10::ArrayRef<const c10::IValue> own_arguments(const at::RecordFunction& call) {
  const auto shown = call.inputs();
  const auto schema = call.operator_schema();
  const size_t own = schema ? schema->arguments().size() : shown.size();
  return own < shown.size() ? shown.slice(shown.size() - own) : shown;
}

}  // namespace dslaunch::runtime
