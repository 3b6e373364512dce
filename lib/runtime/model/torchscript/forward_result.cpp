#include "runtime/model/torchscript/forward_result.hpp"

#include <string>
#include <utility>
#include <vector>

#include "base/error.hpp"
#include "base/format.hpp"

namespace dslaunch::runtime::model::torchscript {
namespace {

void add(ForwardResult& result, const c10::IValue& element, std::string name) {
  if (!element.isTensor()) return;
  if (!result.first.defined()) {
    result.first = element.toTensor();
  } else {
    result.others.push_back(element.toTensor());
  }
  result.names.push_back(std::move(name));
}

void add_sequence(ForwardResult& result, c10::ArrayRef<c10::IValue> elements) {
  for (size_t i = 0; i < elements.size(); ++i) add(result, elements[i], std::to_string(i));
}

void add_named_tuple(ForwardResult& result, const c10::ivalue::Tuple& tuple, const std::vector<c10::Argument>& fields) {
  result.has_own_names = true;
  for (size_t i = 0; i < fields.size() && i < tuple.elements().size(); ++i) {
    const auto& element = tuple.elements()[i];
    if (fields[i].name() == "loss" && element.isTensor()) result.named_loss = element.toTensor();
    add(result, element, fields[i].name());
  }
}

void add_dict(ForwardResult& result, const c10::Dict<c10::IValue, c10::IValue>& dict) {
  result.is_dict = result.has_own_names = true;
  if (dict.contains("loss")) add(result, dict.at("loss"), "loss");
  result.named_loss = result.first;
  for (const auto& entry : dict) {
    const auto& key = entry.key();
    const std::string name = key.isString() ? key.toStringRef() : key.isInt() ? std::to_string(key.toInt()) : "";
    if (name != "loss") add(result, entry.value(), name);
  }
}

}  // namespace

ForwardResult unpack_result(const c10::IValue& value) {
  ForwardResult result;
  if (value.isTensor()) {
    result.first = value.toTensor();
  } else if (value.isTuple()) {
    const auto& tuple = value.toTupleRef();
    const auto type = tuple.type();
    if (type && type->schema()) {
      add_named_tuple(result, tuple, type->schema()->arguments());
    } else {
      add_sequence(result, tuple.elements());
    }
  } else if (value.isList()) {
    add_sequence(result, value.toListRef());
  } else if (value.isGenericDict()) {
    add_dict(result, value.toGenericDict());
  }
  if (!result.first.defined()) {
    throw UserError(
        ExitCode::kBadInput,
        fmt::format("forward returned {}, expected a tensor, or a tuple or dict of tensors", value.tagKind()));
  }
  return result;
}

}  // namespace dslaunch::runtime::model::torchscript
