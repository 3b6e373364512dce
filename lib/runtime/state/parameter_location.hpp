// Where a module holds a parameter: in an attribute, or in an element of a list, dict or tuple that is an attribute
// (nn.LSTM and similar modules hold their weights a second time, in a list).
#pragma once
#include <ATen/core/ivalue.h>

#include <functional>
#include <utility>
#include <vector>

namespace dslaunch::runtime {

using ObjectKey = const c10::ivalue::Object*;
using SlotKey = std::pair<ObjectKey, size_t>;  // an attribute of an object

struct ParameterLocation {
  c10::intrusive_ptr<c10::ivalue::Object> object;
  size_t slot = 0;
  std::vector<c10::IValue> keys = {};  // into containers, from the outermost: indices and dict keys

  at::Tensor get() const;
  void set(const at::Tensor& value) const;
};

// Every value in an attribute that is not a container, with its place.
using ValueVisitor = std::function<void(const ParameterLocation& location, const c10::IValue& value)>;
void for_each_value(const c10::intrusive_ptr<c10::ivalue::Object>& object, size_t slot, const ValueVisitor& visit);

}  // namespace dslaunch::runtime
