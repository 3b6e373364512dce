#include "runtime/model/interface/model.hpp"

#include "runtime/state/local_slice_layout.hpp"
#include "runtime/state/mask_minimum.hpp"

namespace dslaunch::runtime::model {
namespace {

// fp16 or bf16 if any parameter has it in this run.
at::ScalarType smallest_dtype(const ParameterTable& table, const DtypeOf& dtype_of) {
  at::ScalarType out = at::kFloat;
  for (const auto& parameter : table.parameters) {
    const auto dtype = dtype_of(parameter.name, parameter.dtype);
    if (dtype == at::kHalf || (dtype == at::kBFloat16 && out != at::kHalf)) out = dtype;
  }
  return out;
}

}  // namespace

void Model::to_device(at::Device device, const DtypeOf& dtype_of, const std::vector<bool>& is_sharded) {
  for (auto& note : runnable->set_device(device, smallest_dtype(facts.table, dtype_of))) {
    facts.notes.push_back(std::move(note));
  }
  tensors.buffers_to_device(device, dtype_of);
  for (size_t i = 0; i < facts.table.parameters.size(); ++i) {
    const int parameter = static_cast<int>(i);
    const auto& info = facts.table.parameters[i];
    if (info.trainable) continue;
    if (is_sharded[i]) {
      tensors.set_frozen_value(parameter, at::Tensor());
    } else if (!initial.is_empty(parameter)) {
      const at::Tensor value = local_part(initial.value(parameter), info.slice);
      const auto dtype = dtype_of(info.name, value.scalar_type());
      tensors.set_frozen_value(parameter, fitted(value, dtype).to(device, dtype));
    }
  }
}

}  // namespace dslaunch::runtime::model
