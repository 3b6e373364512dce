// A value of a pickle as JSON text, for what a person will read: a config.
#pragma once
#include <string>

#include "runtime/checkpoint/pickle/pickle_value.hpp"

namespace dslaunch::runtime::deepspeed {

// Objects appear by their class's name, what nests deeper than 64 levels as null.
std::string to_json_text(const pickle::Value& value);

}  // namespace dslaunch::runtime::deepspeed
