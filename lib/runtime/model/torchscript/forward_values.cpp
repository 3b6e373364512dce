#include "runtime/model/torchscript/forward_values.hpp"

#include <ATen/ATen.h>

#include <algorithm>
#include <bit>
#include <string>
#include <utility>
#include <vector>

#include "base/error.hpp"
#include "base/format.hpp"

namespace dslaunch::runtime::model::torchscript {
namespace {

using stages::CarriedKind;

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

c10::IValue number_of(int64_t bits, CarriedKind kind) {
  if (kind == CarriedKind::kFloat) return std::bit_cast<double>(bits);
  if (kind == CarriedKind::kBool) return bits != 0;
  return bits;
}

int64_t bits_of(const c10::IValue& number, CarriedKind kind) {
  if (kind == CarriedKind::kFloat) return std::bit_cast<int64_t>(number.toDouble());
  if (kind == CarriedKind::kBool) return number.toBool() ? 1 : 0;
  return number.toInt();
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

torch::jit::Stack carried_arguments(const CarriedValues& carried, const std::vector<CarriedKind>& kinds) {
  const auto num_tensors = static_cast<size_t>(std::count(kinds.begin(), kinds.end(), CarriedKind::kTensor));
  DSL_CHECK(carried.tensors.size() == num_tensors && carried.numbers.size() == kinds.size() - num_tensors,
            fmt::format("a stage takes {} tensors and {} numbers, got {} and {}", num_tensors,
                        kinds.size() - num_tensors, carried.tensors.size(), carried.numbers.size()));
  torch::jit::Stack out;
  auto tensor = carried.tensors.begin();
  auto number = carried.numbers.begin();
  for (const auto kind : kinds) {
    if (kind == CarriedKind::kTensor) {
      out.emplace_back(tensor->requires_grad() && at::GradMode::is_enabled() ? at::alias(*tensor) : *tensor);
      ++tensor;
    } else {
      out.push_back(number_of(*number++, kind));
    }
  }
  return out;
}

CarriedValues unpack_carried(const c10::IValue& value, const std::vector<CarriedKind>& kinds) {
  const auto& elements = value.toTupleRef().elements();
  DSL_CHECK(elements.size() == kinds.size(), "a stage returns what the next one takes");
  CarriedValues out;
  for (size_t i = 0; i < kinds.size(); ++i) {
    if (kinds[i] == CarriedKind::kTensor) {
      out.tensors.push_back(elements[i].toTensor());
    } else {
      out.numbers.push_back(bits_of(elements[i], kinds[i]));
    }
  }
  return out;
}

}  // namespace dslaunch::runtime::model::torchscript
