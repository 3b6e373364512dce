#include "runtime/telemetry/operator_scopes.hpp"

#include <string_view>

namespace dslaunch::runtime {

std::string readable_name(std::string name) {
  constexpr std::string_view kClass = "torch::autograd::CppNode<";
  const size_t begin = name.find(kClass), end = name.rfind('>');
  if (begin == std::string::npos || end == std::string::npos) return name;
  const size_t last_part = name.rfind("::", end) + 2;
  return name.substr(0, begin) + name.substr(last_part, end - last_part) + "Backward";
}

}  // namespace dslaunch::runtime
