// Precompiled once for every translation unit that sees LibTorch's models and autograd. Sources still include what they
// use.
#pragma once
#include <torch/csrc/autograd/custom_function.h>
#include <torch/csrc/jit/api/module.h>
#include <torch/script.h>

#include "tensors.hpp"
