// Precompiled once for every translation unit that sees LibTorch. Sources still include what they use.
#pragma once
#include <ATen/ATen.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/csrc/jit/api/module.h>
#include <torch/script.h>
