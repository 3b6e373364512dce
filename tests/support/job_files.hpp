// The files of a small training job: a model from text, samples of random numbers, and the config that names them.
#pragma once
#include <ATen/ATen.h>
#include <ATen/Parallel.h>

#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "base/log.hpp"
#include "runtime/state/safetensors_writer.hpp"
#include "support/mixed_net.hpp"
#include "support/temp_dir.hpp"

namespace dslaunch::test {

using nlohmann::json;

// `base` with the keys of `changes` replaced or, where they are null, removed.
inline json with(json base, const json& changes) {
  base.merge_patch(changes);
  return base;
}

inline void write_samples(const std::string& path, const NamedTensors& arrays) {
  std::vector<runtime::TensorDescription> descriptions;
  for (const auto& [name, values] : arrays) {
    descriptions.push_back({name, values.scalar_type(), values.sizes().vec()});
  }
  runtime::SafetensorsWriter writer(path, descriptions);
  const std::map<std::string, at::Tensor> by_name(arrays.begin(), arrays.end());
  for (const auto& tensor : writer.order()) writer.write(by_name.at(tensor.name).contiguous());
  writer.finish(/*sync=*/false);
}

// A model file and a data file with their tensors.
struct JobFiles {
  static constexpr int64_t kTrainBatch = 12;

  MemoryDir folder;
  std::string model = folder / "net.pt";
  at::Tensor x = random_values({60, 5}, 100), y = random_values({60, 3}, 101);

  explicit JobFiles(const torch::jit::Module& module) {
    log::set_level(log::Level::kError);
    at::set_num_threads(1);  // ranks are threads already
    module.save(model);
    write_samples(folder / "data.safetensors", {{"x", x}, {"y", y}});
  }
  // Adam's eps is large, so that the size of the gradients shows in the parameters.
  // Each of the changes as in with().
  json config(const json& changes, const json& more = json::object(), const json& last = json::object()) const {
    const json adam{{"lr", 0.05}, {"betas", {0.8, 0.95}}, {"eps", 0.01}, {"weight_decay", 0.1}};
    const json base{{"train_batch_size", kTrainBatch},
                    {"optimizer", {{"type", "AdamW"}, {"params", adam}}},
                    {"data", {{"train", folder / "data.safetensors"}, {"shuffle", false}, {"num_workers", 0}}},
                    {"loss", "mse"},
                    {"train", {{"steps", 4}}}};
    return with(with(with(base, changes), more), last);
  }
  std::vector<std::pair<at::Tensor, at::Tensor>> micro_batches(int64_t step, int64_t rows) const {
    return micro_batches_of(x, y, step, kTrainBatch, rows);
  }
};

}  // namespace dslaunch::test
