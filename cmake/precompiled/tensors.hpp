// Precompiled once for every translation unit that sees tensors and no more of LibTorch. Sources still include what
// they use.
#pragma once
#include <ATen/ATen.h>

#include "plain.hpp"
