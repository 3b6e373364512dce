#include "runtime/model/torchscript/parameter_binding.hpp"

#include <map>
#include <utility>

#include "runtime/model/torchscript/file/parameter_slots.hpp"

namespace dslaunch::runtime::model::torchscript {

ParameterBinding bind_parameters(const torch::jit::Module& module, const std::set<std::string>& mutable_parameters) {
  ParameterBinding out;
  for (auto& held : file::find_parameters(module)) {
    if (mutable_parameters.count(held.name)) {
      out.mutable_parameters.push_back({std::move(held.name), std::move(held.locations)});
      continue;
    }
    const auto& value = held.value;
    out.table.parameters.push_back({std::move(held.name), value.sizes().vec(), value.numel(), value.scalar_type(),
                                    value.requires_grad(), 0, std::move(held.aliases)});
    out.values.push_back(value.detach());
    out.locations.push_back(std::move(held.locations));
  }
  return out;
}

std::vector<HeldTensor> find_buffers(const torch::jit::Module& module) {
  std::map<std::string, torch::jit::Module> modules;
  for (const auto& part : module.named_modules()) modules.emplace(part.name, part.value);
  std::vector<HeldTensor> out;
  for (const auto& buffer : module.named_buffers()) {
    const auto dot = buffer.name.rfind('.');
    const auto& owner = modules.at(dot == std::string::npos ? std::string() : buffer.name.substr(0, dot));
    const auto attribute = dot == std::string::npos ? buffer.name : buffer.name.substr(dot + 1);
    out.push_back({buffer.name, {{owner._ivalue(), owner.type()->getAttributeSlot(attribute)}}});
  }
  return out;
}

}  // namespace dslaunch::runtime::model::torchscript
