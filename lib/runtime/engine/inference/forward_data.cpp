#include "runtime/engine/inference/forward_data.hpp"

#include <ATen/ATen.h>

#include <map>
#include <nlohmann/json.hpp>

#include "base/error.hpp"
#include "base/format.hpp"
#include "config/load.hpp"
#include "runtime/engine/setup/training_data.hpp"
#include "runtime/engine/step/output_choice.hpp"
#include "runtime/state/safetensors_writer.hpp"
#include "runtime/state/tensor_text.hpp"

namespace dslaunch::runtime::engine::inference {
namespace {

using Json = nlohmann::json;

std::vector<std::pair<std::string, at::Tensor>> named_tensors(const model::ForwardResult& result) {
  std::vector<at::Tensor> tensors{result.first};
  tensors.insert(tensors.end(), result.others.begin(), result.others.end());
  std::vector<std::pair<std::string, at::Tensor>> out;
  for (size_t i = 0; i < tensors.size(); ++i) {
    out.emplace_back(i < result.names.size() ? result.names[i] : "output", tensors[i]);
  }
  return out;
}

at::Tensor joined(const std::string& name, const std::vector<at::Tensor>& parts) {
  for (const auto& part : parts) {
    const bool fits =
        part.dim() == parts[0].dim() && (part.dim() == 0 || part.sizes().slice(1).equals(parts[0].sizes().slice(1)));
    if (fits) continue;
    throw UserError(ExitCode::kBadInput,
                    fmt::format("the output '{}' is {} for the first batch and {} for another: samples of different "
                                "lengths cannot be one tensor",
                                name, type_and_shape(parts[0]), type_and_shape(part)));
  }
  return parts[0].dim() == 0 ? at::stack(parts) : at::cat(parts);
}

// Pictures become what they were in the run that has trained the model; of random parts the middle is taken.
void take_picture_keys(const std::string& job_config, config::Data& data) {
  const Json json = Json::parse(job_config, nullptr, /*allow_exceptions=*/false);
  if (!json.is_object() || !json.contains("data")) return;
  Json keys = Json::object();
  for (const char* key : {"normalize", "random_crop"}) {
    if (json["data"].contains(key)) keys[key] = json["data"][key];
  }
  const auto loaded = config::load_text(Json{{"data", std::move(keys)}}.dump(), "the checkpoint's config",
                                        config::Format::kHjson, {}, {.world_size = 1, .model = {}});
  if (!loaded.ok()) return;
  data.normalize = loaded.config.data.normalize;
  data.random_crop = loaded.config.data.random_crop;
}

}  // namespace

ForwardSummary write_forward_outputs(InferModel& model, at::Device device, const ForwardOptions& options) {
  config::JobConfig config;
  config.data.eval = {options.data};
  config.data.inputs = options.inputs;
  config.data.labels = options.labels;
  take_picture_keys(model.job_config(), config.data);
  config.batch.micro_batch = config.batch.train_batch = options.batch;
  const auto& facts = model.model().facts;
  const auto data = setup::open_training_data(facts, config, comm::Mesh{}, /*rank=*/0, at::kFloat, /*pin=*/false);
  EvaluationLoader loader(data.eval, data.eval_arrays, config.data, data.eval_loader);
  const at::NoGradGuard no_grad;
  ForwardSummary summary;
  std::vector<std::string> order;
  std::map<std::string, std::vector<at::Tensor>> parts;
  while (auto batch = loader.next()) {
    const int64_t count = batch->num_samples;
    if (count == 0) continue;
    summary.num_samples += count;
    auto on_device = setup::on_device(*std::move(batch), device);
    on_device.inputs.insert(on_device.inputs.end(), on_device.labels.begin(), on_device.labels.end());
    for (auto& [name, value] : named_tensors(model.model().runnable->forward(on_device.inputs))) {
      auto& list = parts[name];
      if (list.empty()) order.push_back(name);
      list.push_back(value.to(at::kCPU).contiguous());
    }
  }
  std::map<std::string, at::Tensor> values;
  std::vector<TensorDescription> descriptions;
  for (const auto& name : order) {
    const at::Tensor value = values[name] = joined(name, parts[name]);
    descriptions.push_back({name, value.scalar_type(), value.sizes().vec()});
    summary.outputs.push_back({name, value.sizes().vec()});
  }
  SafetensorsWriter writer(options.outputs, descriptions);
  for (const auto& description : writer.order()) writer.write(values.at(description.name));
  writer.finish(/*sync=*/false);
  return summary;
}

}  // namespace dslaunch::runtime::engine::inference
