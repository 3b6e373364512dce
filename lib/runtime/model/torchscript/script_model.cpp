#include "runtime/model/torchscript/script_model.hpp"

#include <torch/csrc/jit/api/function_impl.h>

#include <functional>
#include <map>
#include <optional>
#include <utility>

#include "base/error.hpp"
#include "base/format.hpp"
#include "base/resource_error.hpp"
#include "runtime/model/decoding/quantized_layers.hpp"
#include "runtime/model/decoding/token_cache.hpp"
#include "runtime/model/fusion/segmenter.hpp"
#include "runtime/model/rewrites/autocast_regions.hpp"
#include "runtime/model/rewrites/training_flag_rewrite.hpp"
#include "runtime/model/torchscript/file/script_error.hpp"
#include "runtime/model/torchscript/forward_errors.hpp"
#include "runtime/model/torchscript/forward_values.hpp"
#include "runtime/model/torchscript/graph_passes.hpp"
#include "runtime/model/torchscript/plain_execution.hpp"
#include "runtime/state/tensor_text.hpp"

namespace dslaunch::runtime::model::torchscript {

ScriptModel::ScriptModel(Parts parts)
    : path_(std::move(parts.path)),
      module_(std::move(parts.module)),
      frozen_in_eval_(std::move(parts.frozen_in_eval)),
      traced_state_(rewrites::find_traced_state(module_)),
      is_half_file_(parts.is_half_file),
      calls_autograd_(parts.calls_autograd),
      pass_options_(parts.pass_options),
      stage_(std::move(parts.stage)),
      recorded_(std::move(parts.recorded)),
      token_inputs_(std::move(parts.token_inputs)),
      group_(std::move(parts.group)),
      overlap_(parts.overlap),
      probe_(std::move(parts.probe)),
      root_(std::move(parts.units.root)) {
  for (auto& [unit, module, is_block] : parts.units.others) {
    if (is_block) blocks_.push_back({unit.unit, unit.name, module});
    interception_.intercept(module, std::move(unit));
  }
}

std::vector<std::string> ScriptModel::set_device(at::Device device, at::ScalarType dtype) {
  device_ = device;
  has_device_ = true;
  if (group_ && overlap_.value_or(!device.is_cpu())) group_->overlap(device);
  passes::PassContext context{.module = module_, .options = pass_options_, .device = device, .smallest_dtype = dtype};
  passes::run_passes(graph_passes(), passes::PassNeeds::kDevice, passes::PassTarget::kModel, context);
  return std::move(context.notes);
}

void ScriptModel::set_tensor_group(comm::Communicator& ranks) {
  DSL_CHECK(group_ != nullptr, "the model was loaded for one of several tensor ranks");
  group_->set_communicator(ranks);
}

ProbeReport ScriptModel::probe_split(at::Device device) {
  const auto [probe, split, is_manual] = std::exchange(probe_, {});
  return probe ? probe->run(*split, *group_, device, is_manual) : ProbeReport();
}

std::string ScriptModel::set_recomputation(const RecomputationOptions& options) {
  DSL_CHECK(!has_device_, "set_recomputation comes before set_device");
  auto plan = recomputation::plan_recomputation(blocks_, module_, calls_autograd_, options.number_checkpoints,
                                                options.units_per_group);
  recomputation::InputRanks ranks;
  if (group_) {
    ranks = {group_->rank(), group_->size(), [group = group_](const at::Tensor& own) { return group->stacked(own); }};
  }
  interception_.recompute(options, std::move(ranks), [&](int unit) -> std::optional<recomputation::RecomputedUnit> {
    auto found = plan.units.find(unit);
    return found == plan.units.end() ? std::nullopt : std::optional(found->second);
  });
  return plan.summary;
}

std::string ScriptModel::set_token_dropping(const TokenDroppingOptions& options) {
  const auto refuse = [&](const std::string& why) {
    throw UserError(ExitCode::kBadInput, fmt::format("random_ltd: model '{}': {}", path_, why));
  };
  if (std::ssize(blocks_) != options.num_layers) {
    refuse(fmt::format("it has {} blocks ('units'), and total_layer_num is {}", blocks_.size(), options.num_layers));
  }
  std::map<int, TokenDropping::Unit> units;
  std::vector<std::string> names;
  for (const int64_t layer : options.layers) {
    const auto& block = blocks_[static_cast<size_t>(layer)];
    TokenDropping::Unit unit{.name = block.path};
    const auto& schema = block.module.get_method("forward").function().getSchema();
    for (size_t i = 1; i < schema.arguments().size() && !options.mask_name.empty(); ++i) {
      if (schema.arguments()[i].name() == options.mask_name) unit.mask = static_cast<int>(i) - 1;
    }
    if (!options.mask_name.empty() && unit.mask < 0) {
      refuse(
          fmt::format("forward of block '{}' has no argument '{}' (model_mask_name)", block.path, options.mask_name));
    }
    names.push_back(block.path);
    units[block.unit] = std::move(unit);
  }
  interception_.set_token_dropping(std::make_unique<TokenDropping>(options, std::move(units)));
  return fmt::format("random_ltd: {} of {} blocks get a part of the positions: '{}'", names.size(), blocks_.size(),
                     fmt::join(names, "', '"));
}

void ScriptModel::train(bool training) {
  module_.train(training);
  if (auto* dropping = interception_.token_dropping()) dropping->set_training(training);
  if (training) {
    for (auto& module : frozen_in_eval_) module.setattr("training", false);
  }
}

StageOutput ScriptModel::run_stage(const std::vector<at::Tensor>& inputs, const CarriedValues& carried) {
  torch::jit::Stack arguments = carried_arguments(carried, stage_.carried_in);
  arguments.insert(arguments.end(), inputs.begin(), inputs.end());
  c10::IValue output;
  const PlainExecution plain;
  const rewrites::AutocastRegionsScope regions;
  try {
    output = interception_.call(root_, arguments,
                                [&](torch::jit::Stack given) { return module_.forward(std::move(given)); });
  } catch (const Error&) {
    throw;
  } catch (const std::exception& error) {
    throw_failure();
    refuse_inputs(inputs, carried, error);
  }
  rewrites::drop_history(traced_state_);
  if (stage_.is_last) return {{}, unpack_result(output)};
  return {unpack_carried(output, stage_.carried_out), {}};
}

GraphReport ScriptModel::report_graphs() const {
  return torchscript::report_graphs(module_, pass_options_, device_);
}

Result<std::unique_ptr<CachedForward>> ScriptModel::make_cached_forward(const CacheOptions& options,
                                                                        int64_t vocabulary) {
  if (token_inputs_.empty()) return RunnableModel::make_cached_forward(options, vocabulary);
  const auto& forward = torch::jit::toGraphFunction(module_.get_method("forward").function());
  if (!blocks_.empty()) return Failure{"its units get their parameters one after the other"};
  decoding::CachedModel model{module_, {forward.graph()->copy(), token_inputs_}, device_, vocabulary, {}};
  model.with_parameters = [this](const std::function<c10::IValue()>& body) {
    try {
      return interception_.call(root_, {}, [&](const torch::jit::Stack&) { return body(); });
    } catch (const std::exception&) {
      throw_failure();
      throw;
    }
  };
  if (group_) {
    model.wait = [this](const std::function<bool()>& is_reached) {
      is_reached ? group_->wait_until(is_reached) : group_->wait_for_completion();
    };
  }
  if (pass_options_.kernel_library) {
    auto services = c10::make_intrusive<fusion::FusionServices>();
    services->kernels = pass_options_.kernel_library;
    model.fuse = [services](torch::jit::Block* block) { fusion::fuse_regions(block, services); };
  }
  return decoding::make_token_cache(std::move(model), options);
}

Result<QuantizedLayers> ScriptModel::quantize_layers(WeightType type, const ParameterTable& table) {
  DSL_CHECK(!has_device_, "quantize_layers comes before set_device");
  if (token_inputs_.empty()) return RunnableModel::quantize_layers(type, table);
  if (!blocks_.empty()) return Failure{"its units get their parameters one after the other"};
  std::map<SlotKey, int> parameters;
  const auto add = [&](const units::BoundUnit::Locations& locations, const std::vector<int>& members) {
    for (size_t i = 0; i < members.size(); ++i) {
      for (const auto& location : locations.at(i)) {
        if (location.keys.empty()) parameters[{location.object.get(), location.slot}] = members[i];
      }
    }
  };
  add(root_.locations, table.units.at(0).parameters);
  add(root_.frozen_locations, table.units.at(0).frozen);
  const auto parameter_at = [&](const SlotKey& slot) {
    const auto found = parameters.find(slot);
    return found == parameters.end() ? std::nullopt : std::optional(found->second);
  };
  auto& forward = torch::jit::toGraphFunction(module_.get_method("forward").function());
  return decoding::quantize_layers(*forward.graph(), module_._ivalue(), table, parameter_at, type);
}

// TorchScript makes exceptions that leave a graph its own.
void ScriptModel::throw_failure() {
  interception_.throw_failure();
  if (group_) group_->throw_failure();
}

void ScriptModel::refuse_inputs(const std::vector<at::Tensor>& inputs, const CarriedValues& carried,
                                const std::exception& error) const {
  const std::string cause = file::cause_of(error);
  std::string given = types_and_shapes(inputs);
  if (!stage_.is_first) given += " and, from the stage before, " + types_and_shapes(carried.tensors);
  throw_if_resource_failed(cause, "forward on " + given);
  std::string why = describe_type_mismatch(module_, error);
  if (why.empty()) {
    const std::string sizes = describe_size_mismatch(inputs, recorded_);
    why = sizes.empty() ? cause : fmt::format("{}: {}", sizes, cause);
  }
  throw UserError(ExitCode::kBadInput, fmt::format("forward of '{}' failed on inputs {}: {}{}", path_, given, why,
                                                   forward_advice(cause, inputs, is_half_file_, device_.type())));
}

}  // namespace dslaunch::runtime::model::torchscript
