#include "runtime/model/torchscript/file/parameter_slots.hpp"

#include <algorithm>
#include <map>
#include <set>

#include "base/error.hpp"
#include "base/format.hpp"
#include "runtime/model/interface/model_tensors.hpp"

namespace dslaunch::runtime::model::file {
namespace {

using torch::jit::Module;

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
    collect_other_locations(model, "");
  }
  std::vector<HeldParameter> take() { return std::move(parameters_); }

 private:
  void collect_parameters(const Module& module, const std::string& path) {
    for (const auto& parameter : module.named_parameters(/*recurse=*/false)) {
      const auto name = join_path(path, parameter.name);
      if (parameter.value.requires_grad() && !parameter.value.is_floating_point()) {
        refuse(fmt::format("parameter '{}' is {}; only real floating point numbers can be trained{}", name,
                           c10::toString(parameter.value.scalar_type()),
                           parameter.value.is_complex()
                               ? ": store torch.view_as_real of it, and use torch.view_as_complex in forward"
                               : ""));
      }
      add(name, {module._ivalue(), module.type()->getAttributeSlot(parameter.name)}, parameter.value);
    }
    for (const auto& child : module.named_children()) collect_parameters(child.value, join_path(path, child.name));
  }

  void add(const std::string& name, ParameterLocation location, const at::Tensor& value) {
    const size_t next = parameters_.size();
    size_t index = next;
    if (value.numel() > 0) index = known_.try_emplace(identity_of(value), next).first->second;
    if (index == next) {
      parameters_.push_back({name, value, {}, {}});
    } else {
      parameters_[index].aliases.push_back(name);
    }
    parameters_[index].locations.push_back(std::move(location));
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
          fmt::format("parameters '{}' and '{}' share memory but are different tensors, so they would not stay tied; "
                      "tie them in forward, or clone one of them before the export",
                      parameters_[by_address_[i - 1].second].name, parameters_[by_address_[i].second].name));
    }
  }

  // Lists, dicts and tuples of tensors may hold parameters again (nn.LSTM); any other tensor that shares their memory
  // would miss their updates.
  void collect_other_locations(const Module& module, const std::string& path) {
    const auto& type = module.type();
    const auto object = module._ivalue();
    for (size_t slot = 0; slot < type->numAttributes(); ++slot) {
      if (type->is_parameter(slot)) continue;
      const auto name = join_path(path, type->getAttributeName(slot));
      for_each_value(object, slot, [&](const ParameterLocation& location, const c10::IValue& part) {
        if (part.isTensor()) add_other(name, location, part.toTensor());
        if (part.isObject() && !part.isModule()) reject_shared_members(name, part);
      });
    }
    for (const auto& child : module.named_children()) collect_other_locations(child.value, join_path(path, child.name));
  }

  // A tensor through which a trained parameter's gradients do not flow was detached on purpose, and is not tied.
  void add_other(const std::string& name, const ParameterLocation& location, const at::Tensor& value) {
    if (!has_bytes(value)) return;
    const auto found = known_.find(identity_of(value));
    const bool is_tied = found != known_.end() && !location.keys.empty() &&
                         (value.requires_grad() || !parameters_[found->second].value.requires_grad());
    if (!is_tied) return refuse_shared(name, value);
    parameters_[found->second].locations.push_back(location);
  }

  // An object of a scripted class may hold other objects, or itself.
  void reject_shared_members(const std::string& name, const c10::IValue& object) const {
    std::set<const void*> seen;
    object.visit([&](const c10::IValue& part) {
      if (part.isTensor() && has_bytes(part.toTensor())) refuse_shared(name, part.toTensor());
      return part.isObject() && (part.isModule() || !seen.insert(&part.toObjectRef()).second);
    });
  }

  void refuse_shared(const std::string& name, const at::Tensor& value) const {
    const auto bytes = bytes_of(value);
    // The first parameter that ends after this tensor begins; parameters do not overlap.
    auto found = std::partition_point(by_address_.begin(), by_address_.end(),
                                      [&](const auto& entry) { return entry.first.end <= bytes.begin; });
    if (found == by_address_.end() || found->first.begin >= bytes.end) return;
    refuse(fmt::format(
        "'{}' shares memory with parameter '{}' and would not be updated with it; clone it before the export, read the "
        "parameter itself in forward, or store the parameter (not detached) in a list or a dict of the module",
        name, parameters_[found->second].name));
  }

  std::vector<HeldParameter> parameters_;
  std::map<TensorIdentity, size_t> known_;
  std::vector<std::pair<Bytes, size_t>> by_address_;
};

bool can_hold_tensors(const c10::Type& type) {
  if (type.kind() == c10::TypeKind::TensorType) return true;
  const auto inner = type.containedTypes();
  return type.kind() != c10::TypeKind::ClassType &&
         std::any_of(inner.begin(), inner.end(), [](const auto& part) { return can_hold_tensors(*part); });
}

}  // namespace

std::vector<ParameterLocation> find_tensor_state(const Module& module, const std::set<SlotKey>& parameters) {
  std::vector<ParameterLocation> out;
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

}  // namespace dslaunch::runtime::model::file
