// Lets a trace that was exported in another floating-point type run in a half-precision type (docs/models.md, "Half
// precision"). Scripted models are not changed: their casts name types or follow other values.
#pragma once
#include <c10/core/ScalarType.h>
#include <torch/csrc/jit/api/module.h>

#include <set>
#include <string>
#include <vector>

namespace dslaunch::runtime::model::dtypes {

struct DtypeRewrite {
  std::set<std::string> fp32_buffers;  // names of buffers that stay fp32
  std::vector<std::string> notes;      // for the user
};

// Changes the graphs of `model`, before anything else changes them. `dtype`: in which the run computes; nothing happens
// unless that is a half-precision type and the model was exported in another.
DtypeRewrite follow_dtype(const torch::jit::Module& model, at::ScalarType dtype);

}  // namespace dslaunch::runtime::model::dtypes
