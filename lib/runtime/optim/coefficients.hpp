// The factors of one step, computed once in double and rounded to fp32: the host loops and the CUDA kernels receive the
// same numbers. Pure.
#pragma once
#include <cstdint>

#include "config/job_config.hpp"
#include "kernels/optimizer_rules.h"
#include "runtime/optim/step_rates.hpp"

namespace dslaunch::runtime::optim {

using kernels::AdadeltaCoefficients;
using kernels::AdagradCoefficients;
using kernels::AdamaxCoefficients;
using kernels::AdamCoefficients;
using kernels::AsgdCoefficients;
using kernels::LambCoefficients;
using kernels::LionCoefficients;
using kernels::NadamCoefficients;
using kernels::RadamCoefficients;
using kernels::RmspropCoefficients;
using kernels::RpropCoefficients;
using kernels::SgdCoefficients;

// `step` counts the applied steps from 1. Betas in the rates override those in the settings.
AdamCoefficients adam_coefficients(const config::Optimizer& settings, const GroupRates& rates, int64_t step);
SgdCoefficients sgd_coefficients(const config::Optimizer& settings, const GroupRates& rates, int64_t step);
LionCoefficients lion_coefficients(const config::Optimizer& settings, const GroupRates& rates, int64_t step);
AdagradCoefficients adagrad_coefficients(const config::Optimizer& settings, const GroupRates& rates, int64_t step);
RmspropCoefficients rmsprop_coefficients(const config::Optimizer& settings, const GroupRates& rates, int64_t step);
NadamCoefficients nadam_coefficients(const config::Optimizer& settings, const GroupRates& rates, int64_t step);
RadamCoefficients radam_coefficients(const config::Optimizer& settings, const GroupRates& rates, int64_t step);
AdamaxCoefficients adamax_coefficients(const config::Optimizer& settings, const GroupRates& rates, int64_t step);
AdadeltaCoefficients adadelta_coefficients(const config::Optimizer& settings, const GroupRates& rates, int64_t step);
RpropCoefficients rprop_coefficients(const config::Optimizer& settings, const GroupRates& rates, int64_t step);
AsgdCoefficients asgd_coefficients(const config::Optimizer& settings, const GroupRates& rates, int64_t step);
LambCoefficients lamb_coefficients(const config::Optimizer& settings, const GroupRates& rates, int64_t step);

}  // namespace dslaunch::runtime::optim
