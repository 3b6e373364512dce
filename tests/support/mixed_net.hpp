// A small model that has what sharding must get right: two repeated blocks (units), a tied weight, a frozen weight and
// sizes that no number of ranks divides. And the same model written with LibTorch's operators, trained by LibTorch's
// optimizers in one process: the oracle of what an engine does on any number of ranks.
#pragma once
#include <torch/torch.h>

#include <functional>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "support/script_models.hpp"

namespace dslaunch::test {

inline torch::jit::Module make_block(uint64_t seed) {
  return compile({"Block",
                  "def forward(self, x):\n    return torch.tanh(torch.matmul(x, self.weight) + self.bias) + x\n",
                  {{"weight", random_weight({5, 5}, seed)}, {"bias", random_weight({5}, seed + 1)}}});
}

// forward(x [batch, 5]) -> [batch, 3]
inline torch::jit::Module make_mixed_net() {
  const at::Tensor tied = random_weight({5, 5}, 1);
  const auto encode =
      compile({"Encode", "def forward(self, x):\n    return torch.matmul(x, self.weight)\n", {{"weight", tied}}});
  const auto decode =
      compile({"Decode", "def forward(self, x):\n    return torch.matmul(x, self.weight.t())\n", {{"weight", tied}}});
  const auto blocks = compile({.type = "Blocks",
                               .source = "def forward(self, x):\n    return x\n",
                               .children = {{"0", make_block(10)}, {"1", make_block(20)}}});
  return compile({"MixedNet",
                  R"(
    def forward(self, x):
        x = self.encode.forward(x)
        x = getattr(self.blocks, "0").forward(x)
        x = getattr(self.blocks, "1").forward(x)
        x = torch.matmul(self.decode.forward(x), self.frozen)
        return torch.matmul(x, self.head)
  )",
                  {{"frozen", random_values({5, 5}, 2, 0.4)}, {"head", random_weight({5, 3}, 3)}},
                  {},
                  {{"encode", encode}, {"blocks", blocks}, {"decode", decode}}});
}

using Parameters = std::map<std::string, at::Tensor>;  // fp32 leaves, by the first of a parameter's names

inline Parameters plain_parameters(const torch::jit::Module& module) {
  Parameters out;
  for (const auto& p : module.named_parameters()) {
    out[p.name] = p.value.detach().clone().set_requires_grad(p.value.requires_grad());
  }
  out.erase("decode.weight");
  return out;
}

// `dtype`: in which it is computed.
inline at::Tensor plain_mixed_net(const Parameters& all, const at::Tensor& x, at::ScalarType dtype = at::kFloat) {
  const auto p = [&](const char* name) { return all.at(name).to(dtype); };
  const at::Tensor tied = p("encode.weight");
  at::Tensor y = at::matmul(x.to(dtype), tied);
  y = at::tanh(at::matmul(y, p("blocks.0.weight")) + p("blocks.0.bias")) + y;
  y = at::tanh(at::matmul(y, p("blocks.1.weight")) + p("blocks.1.bias")) + y;
  return at::matmul(at::matmul(at::matmul(y, tied.t()), p("frozen")), p("head"));
}

inline std::vector<at::Tensor> trainable(const Parameters& parameters) {
  std::vector<at::Tensor> out;
  for (const auto& [name, value] : parameters) {
    if (value.requires_grad()) out.push_back(value);
  }
  return out;
}

struct PlainStep {
  double loss = 0, grad_norm = 0;
};

// One step: the mean of the losses of `micro_batches` (rows of x and y), clipped to `max_norm` if that is not 0.
using PlainLoss = std::function<at::Tensor(const at::Tensor& x, const at::Tensor& y)>;
inline PlainStep plain_step(torch::optim::Optimizer& optimizer, const std::vector<at::Tensor>& parameters,
                            const PlainLoss& loss_of,
                            const std::vector<std::pair<at::Tensor, at::Tensor>>& micro_batches, double max_norm) {
  optimizer.zero_grad();
  PlainStep out;
  for (const auto& [x, y] : micro_batches) {
    const at::Tensor loss = loss_of(x, y) / static_cast<double>(micro_batches.size());
    loss.backward();
    out.loss += loss.item<double>();
  }
  at::Tensor squares = at::zeros({}, at::kDouble);
  for (const auto& p : parameters) squares += p.grad().to(at::kDouble).square().sum();
  out.grad_norm = squares.sqrt().item<double>();
  if (max_norm > 0 && out.grad_norm > max_norm) {
    for (const auto& p : parameters) p.grad().mul_(max_norm / out.grad_norm);
  }
  optimizer.step();
  return out;
}

// The micro batches of a step in the order of the data, `rows` samples each.
inline std::vector<std::pair<at::Tensor, at::Tensor>> micro_batches_of(const at::Tensor& x, const at::Tensor& y,
                                                                       int64_t step, int64_t train_batch,
                                                                       int64_t rows) {
  std::vector<std::pair<at::Tensor, at::Tensor>> out;
  for (int64_t first = step * train_batch; first < (step + 1) * train_batch; first += rows) {
    out.emplace_back(x.narrow(0, first, rows), y.narrow(0, first, rows));
  }
  return out;
}

}  // namespace dslaunch::test
