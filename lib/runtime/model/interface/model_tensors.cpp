#include "runtime/model/interface/model_tensors.hpp"

#include <map>

#include "runtime/state/mask_minimum.hpp"

namespace dslaunch::runtime::model {

ModelTensors::ModelTensors(std::vector<HeldTensor> buffers, std::vector<HeldTensor> mutable_parameters,
                           std::vector<std::vector<ParameterLocation>> parameters, std::set<std::string> fp32_buffers)
    : buffers_(std::move(buffers)),
      mutable_parameters_(std::move(mutable_parameters)),
      parameters_(std::move(parameters)),
      fp32_buffers_(std::move(fp32_buffers)) {}

std::vector<std::pair<std::string, at::Tensor>> ModelTensors::buffers() const {
  std::vector<std::pair<std::string, at::Tensor>> out;
  for (const auto& held : buffers_) out.emplace_back(held.name, held.locations.front().get());
  for (const auto& held : mutable_parameters_) out.emplace_back(held.name, held.locations.front().get());
  return out;
}

void ModelTensors::set_frozen_value(int parameter, const at::Tensor& value) {
  for (const auto& location : parameters_.at(static_cast<size_t>(parameter))) location.set(value);
}

at::Tensor ModelTensors::frozen_value(int parameter) const {
  return parameters_.at(static_cast<size_t>(parameter)).front().get();
}

void ModelTensors::buffers_to_device(at::Device device, const DtypeOf& dtype_of) {
  auto moved = [&](const std::string& name, const at::Tensor& value) {
    const auto own = value.scalar_type();
    const auto dtype = fp32_buffers_.count(name) ? own : dtype_of(name, own);
    return fitted(value, dtype).to(device, dtype);
  };
  // A buffer under several names (in a module that the model holds twice) stays one tensor. Keeps the old tensors too:
  // their addresses stay taken.
  std::map<TensorIdentity, std::pair<at::Tensor, at::Tensor>> known;
  for (const auto& [name, locations] : buffers_) {
    const at::Tensor value = locations.front().get();
    const auto same = has_bytes(value) ? known.find(identity_of(value)) : known.end();
    const at::Tensor now = same != known.end() ? same->second.second : moved(name, value);
    if (has_bytes(value)) known.try_emplace(identity_of(value), value, now);
    for (const auto& location : locations) location.set(now);
  }
  for (const auto& [name, locations] : mutable_parameters_) {
    const at::Tensor now = moved(name, locations.front().get().detach());
    for (const auto& location : locations) location.set(now);
  }
}

}  // namespace dslaunch::runtime::model
