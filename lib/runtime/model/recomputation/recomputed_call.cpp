#include "runtime/model/recomputation/recomputed_call.hpp"

#include <torch/csrc/autograd/functions/utils.h>

#include <algorithm>
#include <cstdlib>
#include <utility>

#include "base/error.hpp"
#include "base/format.hpp"

namespace dslaunch::runtime::model::recomputation {
namespace {

struct Step {
  int64_t stride, size;
};

// Whether i0*s0 + i1*s1 + ... is `distance` for some |ik| < size of dim k; the largest strides first.
bool can_reach(int64_t distance, const Step* step, const Step* end) {
  if (step == end) return distance == 0;
  int64_t rest = 0;  // how far the remaining dims reach
  for (const Step* later = step + 1; later != end; ++later) rest += (later->size - 1) * later->stride;
  for (int64_t i = 1 - step->size; i < step->size; ++i) {
    const int64_t left = distance - i * step->stride;
    if (std::abs(left) <= rest && can_reach(left, step + 1, end)) return true;
  }
  return false;
}

}  // namespace

bool may_overlap(const at::Tensor& one, const at::Tensor& other) {
  if (one.numel() == 0 || other.numel() == 0) return false;
  if (one.strides() != other.strides() || one.scalar_type() != other.scalar_type()) return true;
  std::vector<Step> steps;
  for (int64_t dim = 0; dim < one.dim(); ++dim) {
    steps.push_back({one.stride(dim), std::max(one.size(dim), other.size(dim))});
  }
  std::sort(steps.begin(), steps.end(), [](const Step& a, const Step& b) { return a.stride > b.stride; });
  return can_reach(one.storage_offset() - other.storage_offset(), steps.data(), steps.data() + steps.size());
}

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

int64_t LastCall::find(const at::Tensor& tensor) const {
  for (const auto& one : outputs) {
    const bool is_same =
        one.tensor._unsafe_get_target() == tensor.unsafeGetTensorImpl();  // whose address is not reused
    if (is_same && tensor.unsafeGetTensorImpl()->version_counter().current_version() == one.version) return one.output;
  }
  return kNoOutput;
}

void refuse(const SavedCall& call, const std::string& what) {
  throw UserError(ExitCode::kBadInput, fmt::format("cannot recompute unit '{}': {}. Set \"activation_checkpointing\": "
                                                   "{{\"enabled\": false}}, or name other modules in \"units",
                                                   call.recomputed.name, what));
}

}  // namespace dslaunch::runtime::model::recomputation
