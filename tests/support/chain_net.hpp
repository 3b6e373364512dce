// A small model for pipelines of stages: an embedding, four blocks in a row, and a head.
#pragma once
#include <ATen/ATen.h>
#include <torch/script.h>

#include <string>

#include "config/job_config.hpp"

namespace dslaunch::test {

inline constexpr int64_t kChainWidth = 6, kChainClasses = 5, kChainLength = 3;

inline torch::jit::Module chain_block() {
  torch::jit::Module block("Block");
  block.register_parameter("weight", at::randn({kChainWidth, kChainWidth}) * 0.4, false);
  block.register_parameter("bias", at::randn({kChainWidth}) * 0.1, false);
  block.define(R"(
    def forward(self, x):
        return x + torch.tanh(torch.matmul(x, self.weight) + self.bias)
  )");
  return block;
}

// Tied: the weight of the embedding is the head's, too. Blocks: "a" to "d".
inline torch::jit::Module chain_net(bool tied) {
  torch::manual_seed(5);
  torch::jit::Module net("Net");
  net.register_attribute("training", c10::BoolType::get(), true);
  net.register_parameter("table", at::randn({kChainClasses, kChainWidth}) * 0.5, false);
  if (!tied) net.register_parameter("head", at::randn({kChainClasses, kChainWidth}) * 0.5, false);
  for (const char* name : {"a", "b", "c", "d"}) net.register_module(name, chain_block());
  for (const auto& p : net.named_parameters()) p.value.set_requires_grad(true);
  net.define(std::string(R"(
    def forward(self, ids):
        x = torch.embedding(self.table, ids)
        x = self.d.forward(self.c.forward(self.b.forward(self.a.forward(x))))
        return torch.matmul(x.mean(1), self.)") +
             (tied ? "table" : "head") + R"(.t())
  )");
  return net;
}

// Trains the net on random samples, with cross-entropy.
inline config::JobConfig chain_config(int data_ranks, int stages, int64_t micro_batch, int64_t micro_batches) {
  config::JobConfig config;
  config.batch = {micro_batch * micro_batches * data_ranks, micro_batch, micro_batches};
  config.optimizer.lr = 0.01;
  config.pipeline.stages = stages;
  config.pipeline.partition = config::PipelinePartition::kParameters;
  config.units = {"Block"};
  config.data.synthetic_train = true;
  config.data.synthetic = {{.name = "ids", .shape = {kChainLength}, .dtype = "int64", .high = kChainClasses},
                           {.name = "labels", .shape = {}, .dtype = "int64", .high = kChainClasses}};
  config.data.num_workers = 0;
  config.loss = "cross_entropy";
  return config;
}

}  // namespace dslaunch::test
