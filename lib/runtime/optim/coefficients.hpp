// The factors of one step, computed once in double and rounded to fp32: the host loops and the CUDA kernels receive the
// same numbers. Pure.
#pragma once
#include <cstdint>

#include "config/job_config.hpp"
#include "kernels/optimizer_rules.h"
#include "runtime/optim/step_rates.hpp"

namespace dslaunch::runtime::optim {

using kernels::AdagradCoefficients;
using kernels::AdamCoefficients;
using kernels::LambCoefficients;
using kernels::LionCoefficients;
using kernels::SgdCoefficients;

// `step` counts the applied steps from 1. Betas in the rates override those in the settings.
AdamCoefficients adam_coefficients(const config::Optimizer& settings, const GroupRates& rates, int64_t step);
SgdCoefficients sgd_coefficients(const config::Optimizer& settings, const GroupRates& rates, int64_t step);
LionCoefficients lion_coefficients(const config::Optimizer& settings, const GroupRates& rates, int64_t step);
AdagradCoefficients adagrad_coefficients(const config::Optimizer& settings, const GroupRates& rates, int64_t step);
LambCoefficients lamb_coefficients(const config::Optimizer& settings, const GroupRates& rates, int64_t step);

}  // namespace dslaunch::runtime::optim
