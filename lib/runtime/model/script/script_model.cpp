// ModelSource for a TorchScript module: the table of its parameters, the binding of its units, the call.
#include <torch/csrc/jit/api/function_impl.h>
#include <torch/csrc/jit/passes/autocast.h>
#include <torch/csrc/jit/serialization/export.h>
#include <torch/csrc/jit/serialization/import.h>
#include <torch/script.h>

#include <algorithm>
#include <map>
#include <set>

#include "base/error.hpp"
#include "base/format.hpp"
#include "base/log.hpp"
#include "base/resource_error.hpp"
#include "runtime/model/analysis/capture_obstacles.hpp"
#include "runtime/model/analysis/dropped_max_norm.hpp"
#include "runtime/model/analysis/index_bounds_analysis.hpp"
#include "runtime/model/analysis/mutation_analysis.hpp"
#include "runtime/model/analysis/unit_assignment.hpp"
#include "runtime/model/analysis/unit_discovery.hpp"
#include "runtime/model/dtypes/dtype_rewrite.hpp"
#include "runtime/model/file/model_file.hpp"
#include "runtime/model/file/parameter_slots.hpp"
#include "runtime/model/file/tensor_identity.hpp"
#include "runtime/model/fused/graph_passes.hpp"
#include "runtime/model/model_source.hpp"
#include "runtime/model/recomputation/recomputation_plan.hpp"
#include "runtime/model/rewrites/autocast_regions.hpp"
#include "runtime/model/rewrites/graph_constants.hpp"
#include "runtime/model/rewrites/training_flag_rewrite.hpp"
#include "runtime/model/script/failed_operator.hpp"
#include "runtime/model/script/forward_advice.hpp"
#include "runtime/model/script/plain_execution.hpp"
#include "runtime/model/script/unit_interception.hpp"
#include "runtime/model/script_error.hpp"
#include "runtime/state/mask_minimum.hpp"
#include "runtime/state/output_file.hpp"
#include "runtime/state/tensor_text.hpp"

namespace dslaunch::runtime {
namespace {

using torch::jit::Module;

bool is_stride_zero(const at::Tensor& value) {
  return value.numel() > 1 &&
         std::all_of(value.strides().begin(), value.strides().end(), [](int64_t s) { return s == 0; });
}

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

class ScriptModel : public ModelSource {
 public:
  ScriptModel(std::string path, const std::vector<std::string>& unit_names, const GraphPassOptions& passes)
      : path_(std::move(path)), module_(load_mapped_module(path_)) {
    follow_compute_dtype(passes.compute_dtype);
    disable_optimizer_in_forks(module_);
    torch::jit::setAutocastMode(false);  // left to operator dispatch
    apply_autocast_regions(module_);
    run_graph_passes(module_, passes);
    if (!module_.find_method("forward")) {
      throw UserError(ExitCode::kBadInput, fmt::format("model '{}' has no method 'forward'", path_));
    }
    analyze();
    read_signature();
    modes_ = bind_training_flag(module_);
    traced_state_ = find_traced_state(module_);
    note_modes();
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
    for (const auto& held : mutable_params_) out.emplace_back(held.name, held.locations.front().get());
    return out;
  }

  std::vector<ModuleInfo> modules() const override { return module_tree(module_); }

  void to_device(at::Device device, const DtypeOf& dtype_of, const std::vector<bool>& is_sharded) override {
    device_ = device;
    rewrite_device_constants(module_, device);
    fit_constants(module_, smallest_dtype(dtype_of), notes_);
    restore_numbers(module_);
    auto moved = [&](const std::string& name, const at::Tensor& value) {
      const auto own = value.scalar_type();
      const auto dtype = fp32_buffers_.count(name) ? own : dtype_of(name, own);
      return fitted(value, dtype).to(device, dtype);
    };
    move_buffers(moved);
    for (const auto& held : mutable_params_) {
      const at::Tensor value = moved(held.name, held.value.detach());
      for (const auto& location : held.locations) location.set(value);
    }
    for (size_t i = 0; i < table_.parameters.size(); ++i) {
      const int parameter = static_cast<int>(i);
      if (table_.parameters[i].trainable) continue;
      if (is_sharded[i]) {
        set_frozen_value(parameter, at::Tensor());
      } else if (!is_empty(parameter)) {
        set_frozen_value(parameter, moved(table_.parameters[i].name, values_[i]));
      }
    }
  }

  void set_frozen_value(int parameter, const at::Tensor& value) override {
    for (const auto& location : locations_.at(parameter)) location.set(value);
  }

  at::Tensor frozen_value(int parameter) const override { return locations_.at(parameter).front().get(); }

  void set_unit_parameters(UnitParameters* parameters) override { interception_.set_unit_parameters(parameters); }
  void set_unit_observer(UnitObserver* observer) override { interception_.set_unit_observer(observer); }
  std::string set_recomputation(const RecomputationOptions& options) override {
    auto plan = plan_recomputation(blocks_, module_, load_mapped_module(path_), options.number_checkpoints);
    interception_.recompute(options, [&](int unit) -> std::optional<RecomputedUnit> {
      auto found = plan.units.find(unit);
      return found == plan.units.end() ? std::nullopt : std::optional(found->second);
    });
    return plan.summary;
  }
  std::string take_recomputation_profile() override { return interception_.take_recomputation_profile(); }

  Result<> check_capturable() const override { return runtime::check_capturable(module_, host_state_); }
  const std::vector<std::string>& notes() const override { return notes_; }

  void train(bool training) override {
    module_.train(training);
    if (training) {
      for (auto& module : frozen_in_eval_) module.setattr("training", false);
    }
  }

  ForwardResult forward(const std::vector<at::Tensor>& inputs) override {
    const torch::jit::Stack arguments(inputs.begin(), inputs.end());
    c10::IValue output;
    const PlainExecution plain;
    const AutocastRegionsScope regions;
    try {
      output = interception_.call(root_, arguments, [&](torch::jit::Stack given) { return module_.forward(given); });
    } catch (const Error&) {
      throw;
    } catch (const std::exception& error) {
      interception_.throw_failure();
      refuse_inputs(inputs, error);
    }
    drop_history(traced_state_);
    return unpack(output);
  }

 private:
  // Before other passes, which would change the graphs that this one matches with those of a second loaded copy.
  void follow_compute_dtype(at::ScalarType dtype) {
    if (!is_half(dtype)) return;
    auto rewrite = follow_dtype(module_, load_mapped_module(path_), dtype);
    fp32_buffers_ = std::move(rewrite.fp32_buffers);
    notes_.insert(notes_.end(), rewrite.notes.begin(), rewrite.notes.end());
  }

  // A buffer under several names (in a module that the model holds twice) stays one tensor.
  template <typename ToDevice>
  void move_buffers(const ToDevice& moved) {
    // Keeps the old tensors too: their addresses stay taken.
    std::map<TensorIdentity, std::pair<at::Tensor, at::Tensor>> moved_tensors;
    for (const auto& module : module_.named_modules()) {
      const std::string prefix = module.name.empty() ? "" : module.name + ".";
      for (const auto& [name, value] : module.value.named_buffers(/*recurse=*/false)) {
        const auto known = has_bytes(value) ? moved_tensors.find(identity_of(value)) : moved_tensors.end();
        const at::Tensor now = known != moved_tensors.end() ? known->second.second : moved(prefix + name, value);
        if (has_bytes(value)) moved_tensors.try_emplace(identity_of(value), value, now);
        module.value._ivalue()->setAttr(name, now);
      }
    }
  }

  // The smallest dtype of the parameters in this run: fp16 or bf16 if any parameter has it.
  at::ScalarType smallest_dtype(const DtypeOf& dtype_of) const {
    at::ScalarType out = at::kFloat;
    for (const auto& parameter : table_.parameters) {
      const auto dtype = dtype_of(parameter.name, parameter.dtype);
      if (dtype == at::kHalf || (dtype == at::kBFloat16 && out != at::kHalf)) out = dtype;
    }
    return out;
  }

  [[noreturn]] void refuse_inputs(const std::vector<at::Tensor>& inputs, const std::exception& error) const {
    const std::string cause = cause_of(error);
    throw_if_resource_failed(cause, "forward on " + types_and_shapes(inputs));
    const std::string mismatch = describe_type_mismatch(module_, error);
    throw UserError(ExitCode::kBadInput, fmt::format("forward of '{}' failed on inputs {}: {}{}", path_,
                                                     types_and_shapes(inputs), mismatch.empty() ? cause : mismatch,
                                                     forward_advice(cause, inputs, table_, device_.type())));
  }

  // Uses a second loaded copy: these scans inline calls, which would cache the graphs that the interception replaces.
  void analyze() {
    const auto scratch = load_mapped_module(path_);
    note(find_dropped_max_norm(scratch),  // first: the other scans inline calls
         "scripting drops max_norm of embeddings, so their rows are not renormalised: {}");
    index_use_ = scan_index_use(scratch);
    const auto effects = scan_forward_effects(scratch);
    for (const auto& held : find_parameters(scratch)) {
      const bool is_written =
          std::any_of(held.locations.begin(), held.locations.end(), [&](const ParameterLocation& location) {
            return effects.written.count({location.object.get(), location.slot}) > 0;
          });
      if (is_written && held.value.requires_grad()) {
        throw UserError(ExitCode::kBadInput,
                        fmt::format("forward of '{}' writes to parameter '{}' (in place, or by assignment, or as an "
                                    "embedding with max_norm), which the master weights would not reflect. Make it a "
                                    "buffer, or leave the change to the optimizer",
                                    path_, held.name));
      }
      if (is_written && !is_stride_zero(held.value)) mutable_param_names_.insert(held.name);
    }
    host_state_ = find_host_state(scratch, effects);
    if (host_state_.changed.empty()) return;
    notes_.push_back(
        fmt::format("forward changes attributes that are not tensors, so checkpoints do not store them and evaluations "
                    "do not restore them: {}. Use buffers for state that matters",
                    fmt::join(host_state_.changed, ", ")));
  }

  // A model saved with some modules in eval mode and others in train mode is meant that way (a frozen BatchNorm), and
  // training keeps it. A model in eval mode as a whole was merely saved in eval mode.
  void note_modes() {
    std::string eval_modules;
    bool any_trains = false;
    for (const auto& module : module_.named_modules()) {
      if (!module.value.hasattr("training")) continue;
      any_trains |= module.value.is_training();
      if (!module.value.is_training()) frozen_in_eval_.push_back(module.value);
      const bool has_own = module.value.buffers(/*recurse=*/false).size() > 0 || module.value.children().size() == 0;
      if (!module.value.is_training() && has_own) {
        eval_modules += fmt::format("{}{}", eval_modules.empty() ? "" : ", ", module.name);
      }
    }
    if (!any_trains) frozen_in_eval_.clear();
    if (!frozen_in_eval_.empty() && !eval_modules.empty())
      notes_.push_back(fmt::format("kept in eval mode, as saved: {}", eval_modules));
    note(modes_.dropout_off,
         "traced in eval mode, so their dropout is lost: {}; trace the model in train mode to train with dropout");
    note(modes_.statistics_off,
         "traced in eval mode, so they normalise by their saved statistics: {}; trace the model in train mode to train "
         "with batch statistics");
    note(modes_.unconditional_masks,
         "traced with random masks of their own (as in stochastic depth), so they drop in evaluation as well: {}; if "
         "in Python they drop in train mode only, script the model, or evaluate its Python module with the trained "
         "weights");
    note(modes_.averages_fixed,
         "their momentum is 1 over the number of batches they have seen, which looks like a trace of momentum=None: "
         "{}; if so, the momentum stays at this number and their running statistics are not a cumulative average: "
         "script the model, or set a momentum");
  }

  // `text` has a placeholder for the module names.
  void note(std::vector<std::string> modules, fmt::format_string<std::string> text) {
    if (modules.empty()) return;
    std::replace(modules.begin(), modules.end(), std::string(), std::string("the model itself"));
    notes_.push_back(fmt::format(text, fmt::format("{}", fmt::join(modules, ", "))));
  }

  void read_signature() {
    const auto& arguments = module_.get_method("forward").function().getSchema().arguments();
    for (size_t i = 1; i < arguments.size(); ++i) {  // [0] is self
      inputs_.names.push_back(arguments[i].name());
      inputs_.num_required += arguments[i].default_value() ? 0 : 1;
    }
  }

  void build_table(const std::vector<std::string>& unit_names) {
    for (auto& held : find_parameters(module_)) {
      if (mutable_param_names_.count(held.name)) {
        mutable_params_.push_back(std::move(held));
        continue;
      }
      const auto& value = held.value;
      table_.parameters.push_back({std::move(held.name), value.sizes().vec(), value.numel(), value.scalar_type(),
                                   value.requires_grad(), 0, std::move(held.aliases)});
      values_.push_back(value.detach());
      locations_.push_back(std::move(held.locations));
    }
    adopt_units(assign_units(module_, find_unit_candidates(module_, unit_names), locations_, table_));
  }

  void adopt_units(UnitAssignment units) {
    if (!units.is_analyzable) {
      notes_.push_back("modules are called through an interface or on another thread, so the model is one unit");
    }
    root_ = std::move(units.root);
    for (auto& [unit, module, is_block] : units.others) {
      if (is_block) blocks_.push_back({unit.unit, unit.name, module});
      interception_.intercept(module, std::move(unit));
    }
  }

  std::string path_;
  Module module_;
  at::Device device_ = at::kCPU;
  std::vector<std::string> notes_;
  std::set<std::string> fp32_buffers_;  // names; they stay fp32 in a half-precision run
  TracedModes modes_;
  std::vector<ParameterLocation> traced_state_;
  std::vector<Module> frozen_in_eval_;  // modules that stay in eval mode while the others train
  ParameterTable table_;
  std::vector<at::Tensor> values_;                         // by parameter, mapped
  std::vector<std::vector<ParameterLocation>> locations_;  // by parameter
  // Frozen parameters that forward itself writes to, such as the target network of BYOL: effectively buffers.
  std::vector<HeldParameter> mutable_params_;
  std::set<std::string> mutable_param_names_;
  HostState host_state_;  // that forward changes
  InputSignature inputs_;
  IndexUse index_use_;
  UnitInterception interception_;
  BoundUnit root_;
  std::vector<RecomputationCandidate> blocks_;  // units larger than a single layer, in order of use
};

}  // namespace

std::unique_ptr<ModelSource> load_script_model(const std::string& path, const std::vector<std::string>& unit_names,
                                               const GraphPassOptions& passes) {
  return std::make_unique<ScriptModel>(path, unit_names, passes);
}

void write_model_skeleton(const std::string& model_path, const std::string& out_path) {
  auto module = load_mapped_module(model_path);
  bind_training_flag(module);  // so that eval() works on the model in the checkpoint
  for (const auto& held : find_parameters(module)) {
    const auto emptied = at::zeros({}, held.value.options().requires_grad(false))
                             .expand(held.value.sizes())
                             .set_requires_grad(held.value.requires_grad());
    for (const auto& location : held.locations) location.set(emptied);  // tied parameters stay tied
  }
  // Writes to memory first: LibTorch's own writer terminates the process when the disk is full (its destructor throws).
  std::string archive;
  torch::jit::ExportModule(module, [&](const void* data, size_t size) {
    archive.append(static_cast<const char*>(data), size);
    return size;
  });
  OutputFile file(out_path);
  file.write(archive);
  file.finish(/*sync=*/false);
}

}  // namespace dslaunch::runtime
