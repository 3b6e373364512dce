// The table of functions that the CUDA module provides for this room. dsworker does not link CUDA: the first step on
// CUDA tensors loads the module and gets the table from it.
#pragma once
#include <ATen/core/Tensor.h>

#include <cstdint>
#include <span>
#include <tuple>
#include <variant>
#include <vector>

#include "runtime/optim/coefficients.hpp"
#include "runtime/optim/flat_optimizer.hpp"
#include "runtime/optim/gradient_norm.hpp"

namespace dslaunch::runtime::optim {

// The coefficients of one step: known to the host, or selected by the device from a table (see StepInputs).
template <class Coefficients>
struct DeviceCoefficients {
  Coefficients value;  // used if there is no table
  at::Tensor table;    // uint8 on the device: an array of Coefficients; its first row is that of `base` applied steps
  int64_t base = 0;
};

// This rank's part of one parameter, or a part of that: arrays narrowed to it.
struct ParameterPart {
  StateArrays arrays;
  int coefficients = 0;  // its set of them (moment_starts.hpp)
  int parameter = 0;
};

// All of them enqueue on the current stream of the tensors' device and return; the caller has checked sizes, types and
// devices. The steps read gradient_factor, skip and applied_steps of the inputs. A failed kernel launch throws Error.
struct DeviceFunctions {
  // One for each rule of kernels/optimizer_rules.h: std::get<ElementStep<Rule>>(element_steps).
  template <class Rule>
  struct ElementStep {
    void (*run)(const StateArrays& arrays, const DeviceCoefficients<typename Rule::Values>& coefficients,
                const StepInputs& inputs);
  };
#define DSL_STEP_OF(Rule) ElementStep<kernels::Rule>,
  std::tuple<DSL_ELEMENT_RULES(DSL_STEP_OF) std::monostate> element_steps;
#undef DSL_STEP_OF

  // LAMB's first pass over all parts: fp64 [num_parameters, 2], the sums of squares of parameter and update; 0 for
  // parameters without a part. A parameter has at most one part. `on_device` is dsworker's function: only dsworker
  // keeps track of refused pinned memory, the module does not.
  using NumbersOnDevice = at::Tensor (*)(const std::vector<int64_t>& values, at::Device device);
  at::Tensor (*lamb_moments)(std::span<const ParameterPart> parts, int64_t num_parameters,
                             std::span<const DeviceCoefficients<LambCoefficients>> by_set, const StepInputs& inputs,
                             at::Device device, NumbersOnDevice on_device);
  // fp32 [parameters] from fp64 [ranks, parameters, 2]; of the coefficients only the bounds of the ratio are read.
  at::Tensor (*lamb_ratios)(const at::Tensor& sums, const LambCoefficients& bounds);
  // The second pass.
  void (*lamb)(const ParameterPart& part, const DeviceCoefficients<LambCoefficients>& coefficients,
               const at::Tensor& ratios, const StepInputs& inputs);

  at::Tensor (*sum_of_squares)(at::TensorList values);  // 0-dim fp64
  ClippedNorm (*clip)(const at::Tensor& sum_of_squares, double max_norm, double gradient_scale);
};

}  // namespace dslaunch::runtime::optim
