// Initial values for the parameters of a model that was exported empty. Every element is a pure function of (seed,
// parameter name, index), so any slice can be filled alone, and all world sizes and stages start from the same numbers.
#pragma once
#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string>

namespace dslaunch::runtime {

// Rule: parameters with two or more dims are normal(0, std); one-dimensional "weight"s (norms) are 1, all others 0.
// Fills `out` (1-D, floating point, CPU) with elements [begin, begin + out.numel()) of the parameter.
void init_elements(const std::string& name, size_t num_dims, uint64_t seed, double std, int64_t begin, at::Tensor& out);

}  // namespace dslaunch::runtime
