// Linear layers whose weights are kept in few bits. Plain data.
#pragma once
#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

namespace dslaunch::runtime::model {

enum class WeightType : uint8_t {
  kInt8,  // a scale for each output
  kFp8,   // e4m3, likewise
  kInt4,  // a scale and an offset for each group of kInt4Group inputs
};

constexpr int64_t kInt4Group = 128;

constexpr const char* weight_type_name(WeightType type) {
  return type == WeightType::kInt8 ? "int8" : type == WeightType::kFp8 ? "fp8" : "int4";
}

struct QuantizedLayers {
  struct Weight {
    // Quantizes the parameter's value, as it is in the module, on the device where the layer runs; `dtype`: of the
    // layer's inputs. Returns the bytes that are kept. The value is not needed any more then.
    std::function<int64_t(const at::Tensor& value, at::ScalarType dtype)> take;
    bool is_read_otherwise = false;  // its value is in its slot, too: of a head that shares the embedding's weight
  };
  std::map<int, Weight> weights;  // by parameter
  // Other weights of linear layers with the reason: "'head.weight': 16 does not divide its 100 inputs".
  std::vector<std::string> kept;
};

}  // namespace dslaunch::runtime::model
