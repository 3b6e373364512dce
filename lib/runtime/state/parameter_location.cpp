#include "runtime/state/parameter_location.hpp"

namespace dslaunch::runtime {
namespace {

c10::IValue inside(const c10::IValue& container, const c10::IValue& key) {
  if (container.isGenericDict()) return container.toGenericDict().at(key);
  const auto index = static_cast<size_t>(key.toInt());
  return container.isTuple() ? container.toTupleRef().elements()[index] : container.toList().get(index);
}

void put(const c10::IValue& container, const c10::IValue& key, const at::Tensor& value) {
  if (container.isGenericDict()) {
    container.toGenericDict().insert_or_assign(key, value);
    return;
  }
  const auto index = static_cast<size_t>(key.toInt());
  if (container.isTuple()) {
    container.toTuple()->unsafeSetElement(index, value);
  } else {
    container.toList().set(index, value);
  }
}

void visit_values(const c10::IValue& held, ParameterLocation& location, const ValueVisitor& visit) {
  const auto enter = [&](const c10::IValue& key, const c10::IValue& value) {
    location.keys.push_back(key);
    visit_values(value, location, visit);
    location.keys.pop_back();
  };
  if (held.isGenericDict()) {
    for (const auto& entry : held.toGenericDict()) enter(entry.key(), entry.value());
  } else if (held.isTuple() || held.isList()) {
    const auto parts = held.isTuple() ? held.toTupleRef().elements().asArrayRef() : held.toListRef();
    for (size_t i = 0; i < parts.size(); ++i) enter(static_cast<int64_t>(i), parts[i]);
  } else {
    visit(location, held);
  }
}

}  // namespace

at::Tensor ParameterLocation::get() const {
  c10::IValue held = object->getSlot(slot);
  for (const auto& key : keys) held = inside(held, key);
  return held.toTensor();
}

void ParameterLocation::set(const at::Tensor& value) const {
  if (keys.empty()) return object->setSlot(slot, value);
  c10::IValue container = object->getSlot(slot);
  for (size_t i = 0; i + 1 < keys.size(); ++i) container = inside(container, keys[i]);
  put(container, keys.back(), value);
}

void for_each_value(const c10::intrusive_ptr<c10::ivalue::Object>& object, size_t slot, const ValueVisitor& visit) {
  ParameterLocation location{object, slot};
  visit_values(object->getSlot(slot), location, visit);
}

}  // namespace dslaunch::runtime
