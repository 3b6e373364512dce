// What forward returned, as the tensors that a loss takes. Pure.
#pragma once
#include <ATen/core/ivalue.h>

#include "runtime/model/interface/runnable_model.hpp"

namespace dslaunch::runtime::model::torchscript {

// Throws UserError(65) for a value without tensors.
ForwardResult unpack_result(const c10::IValue& value);

}  // namespace dslaunch::runtime::model::torchscript
