#include "runtime/state/parameter_table.hpp"

namespace dslaunch::runtime {

int64_t ParameterTable::num_trainable() const {
  int64_t count = 0;
  for (const auto& parameter : parameters) count += parameter.trainable ? parameter.whole_numel() : 0;
  return count;
}

int64_t ParameterTable::num_elements() const {
  int64_t count = 0;
  for (const auto& parameter : parameters) count += parameter.whole_numel();
  return count;
}

bool is_weight(const std::string& name) {
  return name == "weight" || name.ends_with(".weight");
}

}  // namespace dslaunch::runtime
