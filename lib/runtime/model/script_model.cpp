// ModelSource over a TorchScript module: the table of its parameters, the binding of its units, the call.
#include <torch/csrc/jit/api/function_impl.h>
#include <torch/csrc/jit/passes/autocast.h>
#include <torch/csrc/jit/runtime/graph_executor.h>
#include <torch/csrc/jit/serialization/import.h>
#include <torch/script.h>

#include <algorithm>
#include <map>
#include <set>
#include <tuple>

#include "base/error.hpp"
#include "base/format.hpp"
#include "base/log.hpp"
#include "runtime/model/model_file.hpp"
#include "runtime/model/model_source.hpp"
#include "runtime/model/unit_discovery.hpp"
#include "runtime/model/unit_interception.hpp"

namespace dslaunch::runtime {
namespace {

using torch::jit::Module;

// Every slot of every module that holds a parameter, in the order of the module tree.
struct Slot {
  std::string name;
  ParameterPlace place;
  at::Tensor value;
};

void collect_slots(const Module& module, const std::string& path, std::vector<Slot>& out) {
  for (const auto& parameter : module.named_parameters(/*recurse=*/false)) {
    const size_t slot = module.type()->getAttributeSlot(parameter.name);
    out.push_back(
        {path.empty() ? parameter.name : path + "." + parameter.name, {module._ivalue(), slot}, parameter.value});
  }
  for (const auto& child : module.named_children()) {
    collect_slots(child.value, path.empty() ? child.name : path + "." + child.name, out);
  }
}

// Tied parameters are pickled one by one but share their storage: same bytes, same shape. Empty sets are never tied.
using Identity = std::tuple<const void*, std::vector<int64_t>, std::vector<int64_t>, size_t>;
Identity identity_of(const Slot& slot, size_t index) {
  const bool has_bytes = slot.value.numel() > 0;
  return {has_bytes ? slot.value.data_ptr() : nullptr, slot.value.sizes().vec(), slot.value.strides().vec(),
          has_bytes ? 0 : index + 1};
}

bool is_stride_zero(const at::Tensor& value) {
  return value.numel() > 1 &&
         std::all_of(value.strides().begin(), value.strides().end(), [](int64_t s) { return s == 0; });
}

std::string first_line(std::string text) {
  // TorchScript puts the cause last, after the traceback of the script; a plain operator error puts it first.
  const auto at = text.rfind("RuntimeError: ");
  if (at != std::string::npos) text = text.substr(at + 14);
  return text.substr(0, text.find('\n'));
}

std::string describe_shapes(const std::vector<at::Tensor>& inputs) {
  std::string out;
  for (const auto& input : inputs)
    out += fmt::format("{}{}[{}]", out.empty() ? "" : ", ", c10::toString(input.scalar_type()),
                       fmt::join(input.sizes(), ", "));
  return out;
}

ForwardResult unpack(const c10::IValue& value) {
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
  } else if (value.isList()) {
    for (const auto& element : value.toListRef()) add(element);
  } else if (value.isGenericDict()) {
    auto dict = value.toGenericDict();
    if (dict.contains("loss")) add(dict.at("loss"));
    for (const auto& entry : dict) {
      if (!(entry.key().isString() && entry.key().toStringRef() == "loss")) add(entry.value());
    }
  }
  if (!result.first.defined()) {
    throw UserError(
        ExitCode::kBadInput,
        fmt::format("forward returned {}, but a tensor, a tuple or a dict of tensors is needed", value.tagKind()));
  }
  return result;
}

class ScriptModel : public ModelSource {
 public:
  ScriptModel(std::string path, const std::vector<std::string>& unit_names)
      : path_(std::move(path)), module_(load_mapped_module(path_)) {
    // Predictable execution; fusion is left to graph passes of our own.
    torch::jit::setGraphExecutorOptimize(false);
    // Autocast is left to the operators' dispatch: the pass would cast while it compiles, and stumbles over our
    // operator.
    torch::jit::setAutocastMode(false);
    if (!module_.find_method("forward")) {
      throw UserError(ExitCode::kBadInput, fmt::format("model '{}' has no method 'forward'", path_));
    }
    // On a second reading: inlining, which this scan needs, would cache the graphs that the interception replaces.
    index_use_ = scan_index_use(load_mapped_module(path_));
    read_signature();
    build_table(unit_names);
  }

  const ParameterTable& table() const override { return table_; }
  std::vector<IndexLimit> index_limits() const override { return index_use_.limits; }
  std::optional<int64_t> num_output_classes() const override { return index_use_.num_output_classes; }

  const InputSignature& inputs() const override { return inputs_; }

  at::Tensor initial_value(int parameter) const override { return values_.at(parameter); }
  bool is_empty(int parameter) const override { return is_stride_zero(values_.at(parameter)); }

  std::vector<std::pair<std::string, at::Tensor>> buffers() const override {
    std::vector<std::pair<std::string, at::Tensor>> out;
    for (const auto& buffer : module_.named_buffers()) out.emplace_back(buffer.name, buffer.value);
    return out;
  }

  std::vector<ModuleInfo> modules() const override { return module_tree(module_); }

  void place(at::Device device, const DtypeOf& dtype_of) override {
    auto moved = [&](const std::string& name, const at::Tensor& value) {
      return value.to(device, dtype_of(name, value.scalar_type()));
    };
    rewrite_device_constants(module_, device);
    for (const auto& module : module_.named_modules()) {
      const std::string prefix = module.name.empty() ? "" : module.name + ".";
      for (const auto& buffer : module.value.named_buffers(/*recurse=*/false)) {
        module.value._ivalue()->setAttr(buffer.name, moved(prefix + buffer.name, buffer.value));
      }
    }
    for (size_t i = 0; i < table_.parameters.size(); ++i) {
      if (!table_.parameters[i].trainable && !is_empty(static_cast<int>(i)))
        set_frozen_value(static_cast<int>(i), moved(table_.parameters[i].name, values_[i]));
    }
  }

  void set_frozen_value(int parameter, const at::Tensor& value) override {
    for (const auto& place : places_.at(parameter)) place.object->setSlot(place.slot, value);
  }

  void set_unit_parameters(UnitParameters* parameters) override { interception_.set_unit_parameters(parameters); }
  void train(bool training) override { module_.train(training); }

  ForwardResult forward(const std::vector<at::Tensor>& inputs) override {
    const torch::jit::Stack arguments(inputs.begin(), inputs.end());
    c10::IValue output;
    try {
      output = interception_.call(root_, arguments, [&] { return module_.forward(arguments); });
    } catch (const Error&) {
      throw;
    } catch (const c10::OutOfMemoryError& error) {
      throw UserError(ExitCode::kUnavailable,
                      fmt::format("out of device memory in forward on {}: {}", describe_shapes(inputs),
                                  first_line(error.what_without_backtrace())));
    } catch (const c10::Error& error) {
      refuse_inputs(inputs, error.what_without_backtrace());
    } catch (const std::exception& error) {
      refuse_inputs(inputs, error.what());
    }
    return unpack(output);
  }

 private:
  [[noreturn]] void refuse_inputs(const std::vector<at::Tensor>& inputs, const std::string& what) const {
    throw UserError(ExitCode::kBadInput, fmt::format("forward of '{}' failed on inputs {}: {}", path_,
                                                     describe_shapes(inputs), first_line(what)));
  }

  void read_signature() {
    const auto& arguments = module_.get_method("forward").function().getSchema().arguments();
    for (size_t i = 1; i < arguments.size(); ++i) {  // [0] is self
      inputs_.names.push_back(arguments[i].name());
      inputs_.num_required += arguments[i].default_value() ? 0 : 1;
    }
  }

  void build_table(const std::vector<std::string>& unit_names) {
    std::vector<Slot> slots;
    collect_slots(module_, "", slots);
    std::vector<int> parameter_of_slot = add_parameters(slots);
    const auto candidates = find_unit_candidates(module_, unit_names);
    assign_units(candidates, slots, parameter_of_slot);
  }

  std::vector<int> add_parameters(const std::vector<Slot>& slots) {
    std::map<Identity, int> known;
    std::vector<int> parameter_of_slot;
    for (size_t i = 0; i < slots.size(); ++i) {
      const auto [entry, is_new] =
          known.try_emplace(identity_of(slots[i], i), static_cast<int>(table_.parameters.size()));
      if (is_new) {
        const auto& value = slots[i].value;
        table_.parameters.push_back(
            {slots[i].name, value.sizes().vec(), value.numel(), value.scalar_type(), value.requires_grad(), 0, {}});
        values_.push_back(value.detach());
        places_.emplace_back();
      }
      if (!is_new) table_.parameters[entry->second].aliases.push_back(slots[i].name);
      places_[entry->second].push_back(slots[i].place);
      parameter_of_slot.push_back(entry->second);
    }
    return parameter_of_slot;
  }

  // A parameter belongs to a unit when all its slots lie in that unit and nothing outside reads them; else to the root.
  void assign_units(const std::vector<UnitCandidate>& candidates, const std::vector<Slot>& slots,
                    const std::vector<int>& parameter_of_slot) {
    std::unordered_map<ObjectKey, ObjectKey> unit_of;
    std::unordered_map<ObjectKey, const UnitCandidate*> candidate_of;
    for (const auto& candidate : candidates) {
      candidate_of[candidate.module._ivalue().get()] = &candidate;
      for (const auto& inner : candidate.module.modules())
        unit_of[inner._ivalue().get()] = candidate.module._ivalue().get();
    }
    const UnitUse use = scan_unit_use(module_, unit_of);
    table_.units.push_back({"", {}});
    std::unordered_map<ObjectKey, int> unit_index;
    if (use.understood) {
      for (ObjectKey key : use.call_order) {
        unit_index[key] = static_cast<int>(table_.units.size());
        table_.units.push_back({candidate_of.at(key)->path, {}});
      }
    }
    const std::set<std::pair<ObjectKey, size_t>> read_outside(use.read_outside.begin(), use.read_outside.end());
    std::vector<int> owner(table_.parameters.size(), -1);
    for (size_t i = 0; i < slots.size(); ++i) {
      const auto& place = slots[i].place;
      auto home = unit_of.find(place.object.get());
      auto unit = home == unit_of.end() ? unit_index.end() : unit_index.find(home->second);
      int wanted = unit == unit_index.end() ? 0 : unit->second;
      if (read_outside.count({place.object.get(), place.slot})) wanted = 0;
      int& current = owner[parameter_of_slot[i]];
      current = current == -1 || current == wanted ? wanted : 0;
    }
    for (size_t i = 0; i < owner.size(); ++i) {
      auto& parameter = table_.parameters[i];
      parameter.unit = owner[i];
      if (parameter.trainable) table_.units[parameter.unit].parameters.push_back(static_cast<int>(i));
    }
    bind_units(candidate_of, use);
  }

  void bind_units(const std::unordered_map<ObjectKey, const UnitCandidate*>& candidate_of, const UnitUse& use) {
    root_ = bound(0);
    for (size_t unit = 1; unit < table_.units.size(); ++unit) {
      if (table_.units[unit].parameters.empty()) continue;
      interception_.intercept(candidate_of.at(use.call_order[unit - 1])->module, bound(static_cast<int>(unit)));
    }
  }

  BoundUnit bound(int unit) const {
    BoundUnit out{unit, {}};
    for (int parameter : table_.units[unit].parameters) out.places.push_back(places_[parameter]);
    return out;
  }

  std::string path_;
  Module module_;
  ParameterTable table_;
  std::vector<at::Tensor> values_;                   // by parameter, mapped
  std::vector<std::vector<ParameterPlace>> places_;  // by parameter
  InputSignature inputs_;
  IndexUse index_use_;
  UnitInterception interception_;
  BoundUnit root_;
};

}  // namespace

std::unique_ptr<ModelSource> load_script_model(const std::string& path, const std::vector<std::string>& unit_names) {
  return std::make_unique<ScriptModel>(path, unit_names);
}

void write_model_skeleton(const std::string& model_path, const std::string& out_path) {
  auto module = load_mapped_module(model_path);
  std::vector<Slot> slots;
  collect_slots(module, "", slots);
  std::map<Identity, at::Tensor> emptied;  // tied parameters stay tied
  for (size_t i = 0; i < slots.size(); ++i) {
    const auto& value = slots[i].value;
    auto [entry, is_new] = emptied.try_emplace(identity_of(slots[i], i));
    if (is_new)
      entry->second = at::zeros({}, value.options().requires_grad(false))
                          .expand(value.sizes())
                          .set_requires_grad(value.requires_grad());
    slots[i].place.object->setSlot(slots[i].place.slot, entry->second);
  }
  module.save(out_path);
}

}  // namespace dslaunch::runtime
