// Where a module holds a parameter: an attribute of it, or an element of a list that is an attribute (nn.LSTM and its
// kin hold their weights a second time, in a list).
#pragma once
#include <ATen/core/ivalue.h>

#include <optional>
#include <utility>

namespace dslaunch::runtime {

using ObjectKey = const c10::ivalue::Object*;
using SlotKey = std::pair<ObjectKey, size_t>;  // an attribute of an object

struct ParameterPlace {
  c10::intrusive_ptr<c10::ivalue::Object> object;
  size_t slot = 0;
  std::optional<size_t> element = std::nullopt;  // of a list of tensors

  at::Tensor get() const {
    const auto& held = object->getSlot(slot);
    return element ? held.toTensorList().get(*element) : held.toTensor();
  }
  void set(const at::Tensor& value) const {
    if (element) {
      object->getSlot(slot).toTensorList().set(*element, value);
    } else {
      object->setSlot(slot, value);
    }
  }
};

}  // namespace dslaunch::runtime
