// A pickle value as JSON text for a person to read, such as a config.
#pragma once
#include <string>

#include "runtime/checkpoint/pickle/pickle_value.hpp"

namespace dslaunch::runtime::deepspeed {

// Objects appear as their class name, values that nest deeper than 64 levels as null.
std::string to_json_text(const pickle::Value& value);

}  // namespace dslaunch::runtime::deepspeed
