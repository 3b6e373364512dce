#include "runtime/model/recomputed_call.hpp"

#include <torch/csrc/autograd/functions/utils.h>

#include <utility>

#include "base/error.hpp"
#include "base/format.hpp"

namespace dslaunch::runtime {

bool is_differentiable(const at::Tensor& tensor) {
  return tensor.defined() && torch::autograd::isDifferentiableType(tensor.scalar_type());
}

c10::IValue map_tensors(const c10::IValue& value, const std::function<at::Tensor(const at::Tensor&)>& change) {
  if (value.isTensor()) return value.toTensor().defined() ? change(value.toTensor()) : value.toTensor();
  if (value.isTuple()) {
    const auto tuple = value.toTuple();
    std::vector<c10::IValue> elements;
    for (const auto& element : tuple->elements()) elements.push_back(map_tensors(element, change));
    return c10::ivalue::Tuple::createNamed(std::move(elements), tuple->type<c10::TupleType>());
  }
  if (value.isList()) {
    const auto list = value.toList();
    c10::impl::GenericList out(list.elementType());
    for (size_t i = 0; i < list.size(); ++i) out.push_back(map_tensors(list.get(i), change));
    return out;
  }
  if (value.isGenericDict()) {
    const auto dict = value.toGenericDict();
    c10::impl::GenericDict out(dict.keyType(), dict.valueType());
    for (const auto& entry : dict) out.insert(entry.key(), map_tensors(entry.value(), change));
    return out;
  }
  return value;
}

torch::jit::Stack map_tensors(const torch::jit::Stack& values,
                              const std::function<at::Tensor(const at::Tensor&)>& change) {
  torch::jit::Stack out;
  for (const auto& value : values) out.push_back(map_tensors(value, change));
  return out;
}

void refuse(const SavedCall& call, const std::string& what) {
  throw UserError(
      ExitCode::kBadInput,
      fmt::format("recomputation of unit '{}': {}. Set \"activation_checkpointing\": {{\"enabled\": false}}, "
                  "or name other modules in \"units\"",
                  call.recomputed.name, what));
}

}  // namespace dslaunch::runtime
