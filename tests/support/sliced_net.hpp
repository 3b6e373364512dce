// A small model whose tensor ranks hold parts of some parameters, for tests of what stands beside its graphs: sharding,
// optimizers, checkpoints. Nothing is exchanged in forward: what a cut parameter adds to it is zero, and the gradient
// of its elements depends on the element itself and on values that all tensor ranks have alike. So every mesh must
// train as its data ranks alone do, to the bit.
#pragma once
#include <map>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "runtime/engine/step/engine.hpp"
#include "runtime/model/interface/model.hpp"
#include "support/script_models.hpp"

namespace dslaunch::test {

inline torch::jit::Module sliced_block(uint64_t seed) {
  return compile({"SlicedBlock",
                  R"(
    def forward(self, x):
        own = ((self.fused - self.fused.detach()) * self.fused.detach()).sum()
        own += ((self.conv - self.conv.detach()) * self.conv.detach()).sum()
        own += ((self.rows - self.rows.detach()) * self.rows.detach()).sum()
        own += ((self.heads - self.heads.detach()) * self.heads.detach()).sum()
        return torch.tanh(torch.matmul(x, self.weight) + self.bias) + own * x.mean() + self.frozen.sum() * 0.0
  )",
                  {{"weight", random_weight({5, 5}, seed)},
                   {"bias", random_weight({5}, seed + 1)},
                   {"fused", random_weight({12, 5}, seed + 2)},
                   {"conv", random_weight({5, 12}, seed + 3)},
                   {"rows", random_weight({4, 9}, seed + 4)},
                   {"heads", random_weight({4, 3}, seed + 5)},
                   {"frozen", random_values({5, 6}, seed + 6)}}});
}

// forward(x [batch, 5]) -> [batch, 3]
inline torch::jit::Module make_sliced_net() {
  const auto blocks = compile({.type = "Blocks",
                               .source = "def forward(self, x):\n    return x\n",
                               .children = {{"0", sliced_block(10)}, {"1", sliced_block(20)}}});
  return compile({"SlicedNet",
                  R"(
    def forward(self, x):
        x = getattr(self.blocks, "0").forward(x)
        x = getattr(self.blocks, "1").forward(x)
        return torch.matmul(x, self.head)
  )",
                  {{"head", random_weight({5, 3}, 3)}},
                  {},
                  {{"blocks", blocks}}});
}

// What tensor rank `rank` of `ranks` holds of the parameter; empty: all of it. Up to four ranks.
inline std::optional<runtime::LocalSlice> slice_of(const std::string& name, int rank, int ranks) {
  const auto part = [&](int64_t begin, int64_t length) {
    return runtime::Range{begin + length * rank / ranks, begin + length * (rank + 1) / ranks};
  };
  const auto ends_with = [&](const char* end) { return name.ends_with(end); };
  if (ends_with(".fused")) return runtime::LocalSlice{0, 12, {part(0, 4), part(4, 4), part(8, 4)}};
  if (ends_with(".conv")) return runtime::LocalSlice{1, 12, {part(0, 4), part(4, 4), part(8, 4)}};
  if (ends_with(".rows")) return runtime::LocalSlice{1, 9, {part(0, 9)}};
  if (ends_with(".frozen")) return runtime::LocalSlice{1, 6, {part(0, 6)}};
  if (!ends_with(".heads")) return std::nullopt;
  // Two heads of two rows: of three or four ranks, some hold the same head.
  const auto head_of = [&](int of) { return of * 2 / ranks; };
  runtime::LocalSlice out{0, 4, {{2 * head_of(rank), 2 * head_of(rank) + 2}}, 0, 0};
  for (int other = 0; other < ranks; ++other) {
    if (head_of(other) != head_of(rank)) continue;
    out.num_copies += 1;
    if (other < rank) out.copy += 1;
  }
  return out;
}

// Makes the model that of one tensor rank.
inline void slice_model(runtime::model::Model& model, int rank, int ranks) {
  if (ranks == 1) return;
  for (auto& info : model.facts.table.parameters) {
    info.slice = slice_of(info.name, rank, ranks);
    if (!info.slice) continue;
    const auto dim = static_cast<size_t>(info.slice->dim);
    info.numel = info.numel / info.shape[dim] * info.slice->length();
    info.shape[dim] = info.slice->length();
  }
}

inline std::map<std::string, std::vector<int64_t>> whole_shapes(const runtime::ParameterTable& table) {
  std::map<std::string, std::vector<int64_t>> out;
  for (const auto& info : table.parameters) out[info.name] = info.whole_shape();
  return out;
}

// The whole states of a job whose ranks own parts of slices; as join() (job_rank.hpp).
inline std::map<std::pair<std::string, std::string>, at::Tensor> join_slices(
    const std::vector<std::vector<runtime::engine::step::OwnedState>>& ranks,
    const std::map<std::string, std::vector<int64_t>>& shapes) {
  std::map<std::pair<std::string, std::string>, at::Tensor> out, owners;
  for (const auto& rank : ranks) {
    for (const auto& part : rank) {
      const runtime::SliceLayout layout(shapes.at(part.parameter), part.slice);
      const int64_t numel = runtime::SliceLayout(shapes.at(part.parameter), std::nullopt).numel();
      auto& values = out[{part.parameter, part.state}];
      auto& count = owners[{part.parameter, part.state}];
      if (!values.defined()) values = at::zeros({numel}), count = at::zeros({numel});
      const at::Tensor own = part.values.contiguous();
      for (int64_t i = 0; i < part.count; ++i) {
        const int64_t element = layout.to_whole(part.begin + i);
        values.data_ptr<float>()[element] = own.const_data_ptr<float>()[i];
        count.data_ptr<float>()[element] += 1;
      }
    }
  }
  for (const auto& [key, count] : owners) {
    if (!count.equal(at::ones_like(count))) throw std::logic_error("elements without an owner, or with two");
  }
  return out;
}

}  // namespace dslaunch::test
