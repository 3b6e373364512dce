#include "runtime/model/script/forward_result.hpp"

#include "base/error.hpp"
#include "base/format.hpp"

namespace dslaunch::runtime::model::script {
namespace {

// Undefined in a plain tuple, and in a NamedTuple without such a field.
at::Tensor field_named_loss(const c10::ivalue::Tuple& tuple) {
  const auto type = tuple.type();
  if (!type || !type->schema()) return {};
  const auto& fields = type->schema()->arguments();
  for (size_t i = 0; i < fields.size() && i < tuple.elements().size(); ++i) {
    if (fields[i].name() == "loss" && tuple.elements()[i].isTensor()) return tuple.elements()[i].toTensor();
  }
  return {};
}

}  // namespace

ForwardResult unpack_result(const c10::IValue& value) {
  ForwardResult result;
  auto add = [&](const c10::IValue& element) {
    if (!element.isTensor()) return;
    if (!result.first.defined()) {
      result.first = element.toTensor();
    } else {
      result.others.push_back(element.toTensor());
    }
  };
  if (value.isTensor()) {
    add(value);
  } else if (value.isTuple()) {
    for (const auto& element : value.toTupleRef().elements()) add(element);
    result.named_loss = field_named_loss(value.toTupleRef());
  } else if (value.isList()) {
    for (const auto& element : value.toListRef()) add(element);
  } else if (value.isGenericDict()) {
    auto dict = value.toGenericDict();
    result.is_dict = true;
    if (dict.contains("loss")) add(dict.at("loss"));
    result.named_loss = result.first;
    for (const auto& entry : dict) {
      if (!(entry.key().isString() && entry.key().toStringRef() == "loss")) add(entry.value());
    }
  }
  if (!result.first.defined()) {
    throw UserError(
        ExitCode::kBadInput,
        fmt::format("forward returned {}, expected a tensor, or a tuple or dict of tensors", value.tagKind()));
  }
  return result;
}

}  // namespace dslaunch::runtime::model::script
