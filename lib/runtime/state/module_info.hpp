// One module of a model, as named in reports. Plain data.
#pragma once
#include <string>

namespace dslaunch::runtime {

struct ModuleInfo {
  std::string path;                // "blocks.0.norm"; empty: the model itself. Parents come before their children.
  std::string class_name;          // "LayerNorm"
  const void* identity = nullptr;  // of the object that a call of the module receives as self
};

}  // namespace dslaunch::runtime
