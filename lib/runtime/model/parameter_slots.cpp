#include "runtime/model/parameter_slots.hpp"

#include <algorithm>
#include <map>
#include <tuple>

#include "base/error.hpp"
#include "base/format.hpp"

namespace dslaunch::runtime {
namespace {

using torch::jit::Module;

// Tied parameters are pickled one by one but share their storage: same bytes, same shape. Empty ones are never tied.
using Identity = std::tuple<const void*, std::vector<int64_t>, std::vector<int64_t>, at::ScalarType>;
Identity identity_of(const at::Tensor& value) {
  return {value.data_ptr(), value.sizes().vec(), value.strides().vec(), value.scalar_type()};
}

struct Bytes {
  const char* begin;
  const char* end;
};
Bytes bytes_of(const at::Tensor& value) {
  int64_t extent = 1;
  for (int64_t dim = 0; dim < value.dim(); ++dim) extent += (value.size(dim) - 1) * value.stride(dim);
  const char* begin = static_cast<const char*>(value.data_ptr());
  return {begin, begin + extent * static_cast<int64_t>(value.element_size())};
}

[[noreturn]] void refuse(const std::string& what) {
  throw UserError(ExitCode::kBadInput, what);
}

class ParameterSearch {
 public:
  explicit ParameterSearch(const Module& model) {
    collect_parameters(model, "");
    refuse_overlaps();
    collect_other_places(model, "");
  }
  std::vector<HeldParameter> take() { return std::move(parameters_); }

 private:
  void collect_parameters(const Module& module, const std::string& path) {
    for (const auto& parameter : module.named_parameters(/*recurse=*/false)) {
      const auto name = join_path(path, parameter.name);
      if (parameter.value.requires_grad() && !parameter.value.is_floating_point()) {
        refuse(fmt::format("parameter '{}' is {}; only real floating point numbers can be trained", name,
                           c10::toString(parameter.value.scalar_type())));
      }
      add(name, {module._ivalue(), module.type()->getAttributeSlot(parameter.name)}, parameter.value);
    }
    for (const auto& child : module.named_children()) collect_parameters(child.value, join_path(path, child.name));
  }

  void add(const std::string& name, ParameterPlace place, const at::Tensor& value) {
    const size_t next = parameters_.size();
    size_t index = next;
    if (value.numel() > 0) index = known_.try_emplace(identity_of(value), next).first->second;
    if (index == next) {
      parameters_.push_back({name, value, {}, {}});
    } else {
      parameters_[index].aliases.push_back(name);
    }
    parameters_[index].places.push_back(std::move(place));
  }

  void refuse_overlaps() {
    for (size_t i = 0; i < parameters_.size(); ++i) {
      if (parameters_[i].value.numel() > 0) by_address_.emplace_back(bytes_of(parameters_[i].value), i);
    }
    std::sort(by_address_.begin(), by_address_.end(),
              [](const auto& a, const auto& b) { return a.first.begin < b.first.begin; });
    for (size_t i = 1; i < by_address_.size(); ++i) {
      if (by_address_[i].first.begin >= by_address_[i - 1].first.end) continue;
      refuse(
          fmt::format("parameters '{}' and '{}' share memory without being the same tensor, so they would not stay "
                      "tied; tie them in forward, or clone one before the export",
                      parameters_[by_address_[i - 1].second].name, parameters_[by_address_[i].second].name));
    }
  }

  // A list of tensors may hold parameters again (nn.LSTM); anything else that shares their memory would be left behind.
  void collect_other_places(const Module& module, const std::string& path) {
    const auto& type = module.type();
    const auto object = module._ivalue();
    for (size_t slot = 0; slot < type->numAttributes(); ++slot) {
      const auto& held = object->getSlot(slot);
      if (type->is_parameter(slot) || held.isObject()) continue;
      const auto name = join_path(path, type->getAttributeName(slot));
      if (held.isTensorList()) {
        const auto list = held.toTensorList();
        for (size_t i = 0; i < list.size(); ++i) add_other(name, {object, slot, i}, list.get(i));
        continue;
      }
      held.visit([&](const c10::IValue& part) {
        if (part.isTensor() && part.toTensor().defined()) refuse_shared(name, part.toTensor());
        return part.isObject();
      });
    }
    for (const auto& child : module.named_children()) collect_other_places(child.value, join_path(path, child.name));
  }

  void add_other(const std::string& name, ParameterPlace place, const at::Tensor& value) {
    if (!value.defined() || value.numel() == 0) return;
    auto found = known_.find(identity_of(value));
    if (found == known_.end()) return refuse_shared(name, value);
    parameters_[found->second].places.push_back(std::move(place));
  }

  void refuse_shared(const std::string& name, const at::Tensor& value) const {
    if (!value.has_storage() || value.numel() == 0 || value.layout() != at::kStrided) return;
    const auto bytes = bytes_of(value);
    // The first parameter that ends after this tensor begins; parameters do not overlap.
    auto found = std::partition_point(by_address_.begin(), by_address_.end(),
                                      [&](const auto& entry) { return entry.first.end <= bytes.begin; });
    if (found == by_address_.end() || found->first.begin >= bytes.end) return;
    refuse(
        fmt::format("'{}' shares memory with parameter '{}' and would not follow its training; clone it before the "
                    "export, or read the parameter itself in forward",
                    name, parameters_[found->second].name));
  }

  std::vector<HeldParameter> parameters_;
  std::map<Identity, size_t> known_;
  std::vector<std::pair<Bytes, size_t>> by_address_;
};

bool can_hold_tensors(const c10::Type& type) {
  if (type.kind() == c10::TypeKind::TensorType) return true;
  const auto inner = type.containedTypes();
  return type.kind() != c10::TypeKind::ClassType &&
         std::any_of(inner.begin(), inner.end(), [](const auto& part) { return can_hold_tensors(*part); });
}

}  // namespace

std::vector<ParameterPlace> find_tensor_state(const Module& module, const std::set<SlotKey>& parameters) {
  std::vector<ParameterPlace> out;
  for (const auto& inner : module.modules()) {
    const auto object = inner._ivalue();
    for (size_t slot = 0; slot < object->type()->numAttributes(); ++slot) {
      if (parameters.count({object.get(), slot}) || !can_hold_tensors(*object->type()->getAttribute(slot))) continue;
      out.push_back({object, slot});
    }
  }
  return out;
}

std::string join_path(const std::string& parent, const std::string& child) {
  return parent.empty() ? child : parent + "." + child;
}

std::vector<HeldParameter> find_parameters(const Module& model) {
  return ParameterSearch(model).take();
}

}  // namespace dslaunch::runtime
