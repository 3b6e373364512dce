// The names of element types in safetensors.
#pragma once
#include <c10/core/ScalarType.h>

#include <optional>
#include <string>

namespace dslaunch::runtime {

// "F32" and so on; empty for a dtype that the format does not know.
std::string safetensors_dtype_name(at::ScalarType dtype);
std::optional<at::ScalarType> safetensors_dtype(const std::string& name);

}  // namespace dslaunch::runtime
