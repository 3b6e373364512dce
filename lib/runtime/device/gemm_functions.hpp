// The function table that the CUDA module provides for this room. dsworker does not link CUDA: the first GEMM with a
// choice loads the module.
#pragma once
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "runtime/device/gemm.hpp"
#include "runtime/device/gemm_algorithm.hpp"

namespace dslaunch::runtime::device {

struct GemmFunctions {
  // What cuBLASLt's heuristics name for the GEMM, the fastest by them first.
  std::vector<Algorithm> (*algorithms)(const GemmProblem& gemm, const at::Tensor& out);
  // Enqueues the GEMM. False, with nothing done: this algorithm does not take it.
  bool (*run)(const GemmProblem& gemm, const at::Tensor& out, bool adds, const Algorithm& algorithm);
  // Enqueues the turns one after the other on the device's current stream, waits for them, and returns the microseconds
  // that each took.
  std::vector<double> (*microseconds)(std::span<const std::function<void()>> turns, at::Device device);
  // The card's name and cuBLASLt's version.
  std::string (*description)(at::Device device);
};

}  // namespace dslaunch::runtime::device
