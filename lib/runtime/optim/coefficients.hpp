// What one step multiplies with, computed once in double and rounded to fp32: the host loops and the CUDA kernels
// receive the same numbers. Pure.
#pragma once
#include <cstdint>

#include "config/job_config.hpp"
#include "kernels/optimizer_coefficients.h"

namespace dslaunch::runtime::optim {

using kernels::AdamCoefficients;
using kernels::SgdCoefficients;

// `step` counts the applied steps from 1.
AdamCoefficients adam_coefficients(const config::Optimizer& settings, double lr, int64_t step);
SgdCoefficients sgd_coefficients(const config::Optimizer& settings, double lr, int64_t step);

}  // namespace dslaunch::runtime::optim
