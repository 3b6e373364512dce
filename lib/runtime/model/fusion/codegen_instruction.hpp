// One instruction of a region in CUDA, and the types and functions that kernels of regions begin with. Pure text.
#pragma once
#include <string>
#include <vector>

#include "runtime/model/fusion/ir.hpp"

namespace dslaunch::runtime::model::fusion {

// Types of two bytes, loads of whole packs, sums and maxima within a warp. `fast`: sigmoid and tanh by the hardware's
// approximations, whose errors are below bf16's.
std::string device_functions(bool fast);

// Null: a type without kernels.
const char* type_name(at::ScalarType type);

// A constant in fp32, exact by its 9 digits.
std::string literal(double number);

// The operation on operands that are fp32 expressions.
std::string expression(const Instruction& node, const std::vector<std::string>& x);

}  // namespace dslaunch::runtime::model::fusion
