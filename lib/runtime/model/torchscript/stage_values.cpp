#include "runtime/model/torchscript/stage_values.hpp"

#include <ATen/ATen.h>

#include <algorithm>
#include <bit>

#include "base/error.hpp"
#include "base/format.hpp"

namespace dslaunch::runtime::model::torchscript {
namespace {

using stages::CarriedKind;

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
