// Models as users export them, compiled from text in the test and saved to a file.
#pragma once
#include <ATen/ATen.h>
#include <torch/script.h>

#include <string>
#include <utility>
#include <vector>

namespace dslaunch::test {

using NamedTensors = std::vector<std::pair<std::string, at::Tensor>>;

// A module's class, its own tensors and its children; `source` is the text of its methods.
struct ScriptModule {
  std::string type;
  std::string source;
  NamedTensors parameters = {};  // trainable if they require gradients
  NamedTensors buffers = {};
  std::vector<std::pair<std::string, torch::jit::Module>> children = {};
};

// A module has the attribute `training`, as every module of PyTorch.
inline torch::jit::Module compile(const ScriptModule& from) {
  torch::jit::Module out(from.type);
  for (const auto& [name, value] : from.parameters) out.register_parameter(name, value, /*is_buffer=*/false);
  for (const auto& [name, value] : from.buffers) out.register_buffer(name, value);
  for (const auto& [name, child] : from.children) out.register_module(name, child);
  out.register_attribute("training", c10::BoolType::get(), true);
  out.define(from.source);
  return out;
}

// Numbers that depend only on `seed`, of a normal distribution; `scale` is its width.
inline at::Tensor random_values(at::IntArrayRef shape, uint64_t seed, double scale = 1) {
  auto generator = at::detail::createCPUGenerator(seed);
  return at::randn(shape, generator) * scale;
}

inline at::Tensor random_weight(at::IntArrayRef shape, uint64_t seed, double scale = 0.4) {
  return random_values(shape, seed, scale).set_requires_grad(true);
}

}  // namespace dslaunch::test
