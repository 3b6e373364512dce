#include "runtime/model/torchscript/load_script_model.hpp"

#include <torch/csrc/jit/api/function_impl.h>
#include <torch/csrc/jit/api/module.h>

#include <algorithm>
#include <numeric>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "base/error.hpp"
#include "base/format.hpp"
#include "runtime/model/analysis/capture_obstacles.hpp"
#include "runtime/model/analysis/index_bounds_analysis.hpp"
#include "runtime/model/analysis/unit_assignment.hpp"
#include "runtime/model/decoding/token_forward.hpp"
#include "runtime/model/graph/aliases.hpp"
#include "runtime/model/graph/unit_discovery.hpp"
#include "runtime/model/interface/initial_values.hpp"
#include "runtime/model/layers/linear.hpp"
#include "runtime/model/placement/plan_placements.hpp"
#include "runtime/model/rewrites/training_flag_rewrite.hpp"
#include "runtime/model/tensor_parallel/apply_placements.hpp"
#include "runtime/model/tensor_parallel/probe.hpp"
#include "runtime/model/torchscript/file/model_file.hpp"
#include "runtime/model/torchscript/file/parameter_slots.hpp"
#include "runtime/model/torchscript/graph_passes.hpp"
#include "runtime/model/torchscript/model_stage.hpp"
#include "runtime/model/torchscript/parameter_binding.hpp"
#include "runtime/model/torchscript/script_model.hpp"
#include "runtime/model/torchscript/training_modes.hpp"
#include "runtime/state/mask_minimum.hpp"

namespace dslaunch::runtime::model::torchscript {
namespace {

using torch::jit::Module;

// What the graphs of a model's forward say about it before it runs.
struct ModelAnalysis {
  analysis::IndexUse index_use;
  analysis::HostState host_state;            // that forward changes
  std::set<std::string> mutable_parameters;  // names of frozen parameters that forward itself writes to
  bool calls_autograd = false;               // forward computes gradients itself
  std::vector<std::string> notes;            // for the user
};

std::set<std::string> find_mutable_parameters(const torch::jit::Module& model, const graph::ForwardEffects& effects,
                                              const std::string& path) {
  std::set<std::string> out;
  for (const auto& held : file::find_parameters(model)) {
    const bool is_written =
        std::any_of(held.locations.begin(), held.locations.end(), [&](const ParameterLocation& location) {
          return effects.written.count({location.object.get(), location.slot}) > 0;
        });
    if (is_written && held.value.requires_grad()) {
      throw UserError(ExitCode::kBadInput,
                      fmt::format("forward of '{}' writes to parameter '{}' (in place, or by assignment, or as an "
                                  "embedding with max_norm), which the master weights would not reflect. Make it a "
                                  "buffer, or leave the change to the optimizer",
                                  path, held.name));
    }
    if (is_written && !is_stride_zero(held.value)) out.insert(held.name);
  }
  return out;
}

// `model`: as the file at `path` has it, before a pass changes its graphs. Throws UserError(65) when forward writes to
// a trained parameter.
ModelAnalysis analyze_model(const torch::jit::Module& model, const std::string& path) {
  ModelAnalysis out;
  add_note(out.notes, analysis::find_dropped_max_norm(model),
           "scripting drops max_norm of embeddings, so their rows are not renormalised: {}");
  const auto flat = graph::flatten_resolved(model);
  out.index_use = analysis::scan_index_use(flat);
  const auto effects = graph::scan_forward_effects(flat);
  out.calls_autograd = effects.calls_autograd;
  out.mutable_parameters = find_mutable_parameters(model, effects, path);
  out.host_state = analysis::find_host_state(model, effects);
  if (!out.host_state.changed.empty()) {
    out.notes.push_back(
        fmt::format("forward changes attributes that are not tensors, so checkpoints do not store them and evaluations "
                    "do not restore them: {}. Use buffers for state that matters",
                    fmt::join(out.host_state.changed, ", ")));
  }
  return out;
}

passes::PassContext rewrite_graphs(const Module& module, const GraphPassOptions& options) {
  passes::PassContext context{.module = module, .options = options};
  passes::run_passes(graph_passes(), passes::PassNeeds::kGraphs, passes::PassTarget::kModel, context);
  return context;
}

InputSignature signature_of(const Module& module) {
  InputSignature out;
  const auto& arguments = module.get_method("forward").function().getSchema().arguments();
  for (size_t i = 1; i < arguments.size(); ++i) {  // [0] is self
    out.names.push_back(arguments[i].name());
    out.num_required += arguments[i].default_value() ? 0 : 1;
  }
  return out;
}

bool has_half_parameters(const ParameterTable& table) {
  return std::any_of(table.parameters.begin(), table.parameters.end(),
                     [](const auto& parameter) { return is_half(parameter.dtype); });
}

// A file without that record may show in its graph that forward shifts the labels.
LabelConvention labels_of(const ModelMetadata& metadata, const std::vector<IndexLimit>& limits) {
  const bool shifts = std::any_of(limits.begin(), limits.end(), [](const IndexLimit& limit) {
    return limit.ignored && limit.range == IndexRange{.dim = limit.range.dim, .begin = 1} &&
           (limit.range.dim == 1 || limit.range.dim == -1);
  });
  const bool is_recorded = metadata.labels != LabelConvention::kNotRecorded;
  return is_recorded || !shifts ? metadata.labels : LabelConvention::kSame;
}

// By argument of the call, which for a stage of a pipeline has those that the stage reads.
std::vector<RecordedInput> recorded_arguments(const InputSignature& inputs, const std::optional<ModelStage>& stage) {
  std::vector<size_t> arguments(inputs.names.size());
  std::iota(arguments.begin(), arguments.end(), size_t{0});
  if (stage) arguments = stage->facts.plan.stages.at(static_cast<size_t>(stage->facts.stage)).inputs;
  std::vector<RecordedInput> out(arguments.size());
  for (size_t i = 0; i < arguments.size(); ++i) {
    for (const auto& recorded : inputs.recorded) {
      if (recorded.name == inputs.names.at(arguments[i])) out[i] = recorded;
    }
  }
  return out;
}

void append(std::vector<std::string>& notes, const std::vector<std::string>& more) {
  notes.insert(notes.end(), more.begin(), more.end());
}

struct TokenOptions {
  bool keeps_units = false;
};

// Changes forward, and what the analysis says of its arguments; these are then `inputs`.
Result<TokenFacts> cut_to_tokens(const Module& module, const TokenOptions& options, ModelAnalysis& analysis,
                                 std::vector<std::string>& inputs) {
  std::vector<graph::UnitCandidate> kept;
  if (options.keeps_units) kept = graph::find_unit_candidates(module, {});
  std::erase_if(kept, [](const auto& unit) { return !unit.is_block; });
  const auto cut = decoding::cut_to_logits(module, kept);
  if (!cut.ok()) return Failure{cut.error()};
  decoding::replace_forward(module, *cut);
  analysis.index_use = analysis::scan_index_use(graph::flatten_resolved(module));
  inputs = cut->inputs;
  return TokenFacts{.has_encoder = inputs.size() > 1};
}

// What a split of a forward of tokens is planned with.
std::vector<RecordedInput> recorded_tokens(const std::vector<std::string>& names,
                                           const std::vector<RecordedInput>& recorded) {
  constexpr int64_t kLength = 16;  // of what the file does not record
  std::vector<RecordedInput> out;
  for (const auto& name : names) {
    const auto own = std::find_if(recorded.begin(), recorded.end(),
                                  [&](const auto& input) { return input.name == name && input.shape.size() == 1; });
    out.push_back(own == recorded.end() ? RecordedInput{name, "int64", {kLength}} : *own);
  }
  return out;
}

struct SplitModel {
  std::optional<PlacementReport> report;
  tensor_parallel::TensorGroupPtr group;
  tensor_parallel::PendingProbe probe;
  std::optional<graph::FlatGraph> flat;  // of forward; empty: as it was
};

// Makes the module and its table those of one tensor rank.
SplitModel split_among_ranks(const Module& module, const std::vector<graph::UnitCandidate>& units,
                             const std::vector<RecordedInput>& inputs, const placement::TensorParallelOptions& tensor,
                             ParameterBinding& binding) {
  if (!tensor.is_on()) return {};
  auto plan = placement::plan_placements({module, units, binding.table, binding.locations, inputs}, tensor);
  auto group = c10::make_intrusive<tensor_parallel::TensorGroup>(tensor.rank, tensor.size);
  const auto probe = std::make_shared<tensor_parallel::Probe>(plan, binding.table, binding.locations, tensor.probe);
  tensor_parallel::apply_placements(plan, group, binding.table);
  SplitModel out{
      std::move(plan.report), std::move(group), {probe, probe->split_graphs(plan), !tensor.rules.empty()}, {}};
  if (!plan.graphs.empty() && plan.graphs[0].instances[0] == module) out.flat = std::move(plan.graphs[0].flat);
  return out;
}

std::unique_ptr<Model> load(const ScriptFile& file, const std::vector<std::string>& unit_names,
                            const GraphPassOptions& passes, const StageOptions* stages,
                            const placement::TensorParallelOptions& tensor, const TokenOptions* tokens = nullptr) {
  const auto module = file.module();
  auto analysis = analyze_model(module, file.path());
  auto rewrite = rewrite_graphs(module, passes);
  auto modes = find_training_modes(module);
  const auto metadata = read_model_metadata(file.path());
  const auto labels = labels_of(metadata, analysis.index_use.limits);
  std::optional<Result<TokenFacts>> token_facts;
  std::vector<std::string> token_inputs;
  if (tokens != nullptr) token_facts = cut_to_tokens(module, *tokens, analysis, token_inputs);
  auto binding = bind_parameters(module, analysis.mutable_parameters);
  auto buffers = find_buffers(module);
  auto inputs = signature_of(module);
  auto candidates = graph::find_unit_candidates(module, unit_names);
  if (tensor.is_on() && stages == nullptr) candidates = placement::units_of_split_model(module, std::move(candidates));
  const auto split_inputs = token_inputs.empty() ? metadata.inputs : recorded_tokens(token_inputs, metadata.inputs);
  auto split = split_among_ranks(module, candidates, split_inputs, tensor, binding);
  if (split.group && !token_inputs.empty()) {
    tensor_parallel::drop_backward(*torch::jit::toGraphFunction(module.get_method("forward").function()).graph());
  }
  std::optional<ModelStage> stage;
  if (stages != nullptr) {
    stage = cut_to_stage({module, candidates, passes.compute_dtype, split.flat ? &*split.flat : nullptr}, *stages,
                         binding, buffers);
    append(rewrite.notes, stage->facts.plan.notes);
    if (stages->defers_weight_gradients) layers::take_weight_gradients(module, /*writes=*/false);
  }
  auto units = analysis::assign_units(module, candidates, binding.locations, binding.table);

  inputs.recorded = metadata.inputs;
  auto recorded = recorded_arguments(inputs, stage);
  ModelFacts facts{.table = std::move(binding.table),
                   .inputs = std::move(inputs),
                   .index_limits = std::move(analysis.index_use.limits),
                   .index_arguments = std::move(analysis.index_use.arguments),
                   .length_limits = std::move(analysis.index_use.lengths),
                   .num_classes = std::move(analysis.index_use.num_classes),
                   .labels = labels,
                   .averages_over_labels = metadata.averages_over_labels,
                   .modules = graph::module_tree(module),
                   .capturable = analysis::check_capturable(module, analysis.host_state),
                   .stage = stage ? std::optional(std::move(stage->facts)) : std::nullopt,
                   .fp8 = std::move(rewrite.fp8),
                   .placements = std::move(split.report),
                   .tokens = std::move(token_facts),
                   .notes = std::move(rewrite.notes)};
  for (const auto& more : {analysis.notes, modes.notes}) append(facts.notes, more);
  if (!units.is_analyzable) {
    facts.notes.emplace_back("modules are called through an interface or on another thread, so the model is one unit");
  }
  ScriptModel::Parts parts{file.path(),
                           module,
                           std::move(units),
                           std::move(modes.frozen_in_eval),
                           has_half_parameters(facts.table),
                           analysis.calls_autograd,
                           passes,
                           stage ? std::move(stage->call) : stages::StageCall(),
                           std::move(recorded),
                           std::move(token_inputs),
                           std::move(split.group),
                           std::move(split.probe),
                           tensor.overlap};
  return std::make_unique<Model>(Model{std::move(facts), InitialValues(std::move(binding.values)),
                                       ModelTensors(std::move(buffers), std::move(binding.mutable_parameters),
                                                    std::move(binding.locations), std::move(rewrite.fp32_buffers)),
                                       std::make_unique<ScriptModel>(std::move(parts))});
}

}  // namespace

std::unique_ptr<Model> load_script_model(const ScriptFile& file, const std::vector<std::string>& unit_names,
                                         const GraphPassOptions& passes,
                                         const placement::TensorParallelOptions& tensor) {
  return load(file, unit_names, passes, nullptr, tensor);
}

std::unique_ptr<Model> load_token_model(const ScriptFile& file, const GraphPassOptions& passes, bool keeps_units,
                                        const placement::TensorParallelOptions& tensor) {
  const TokenOptions options{keeps_units};
  return load(file, {}, passes, nullptr, tensor, &options);
}

std::unique_ptr<Model> load_script_stage(const ScriptFile& file, const std::vector<std::string>& unit_names,
                                         const GraphPassOptions& passes, const StageOptions& options,
                                         const placement::TensorParallelOptions& tensor) {
  return load(file, unit_names, passes, &options, tensor);
}

Result<LayerMeasurement> measure_script_layers(const ScriptFile& file, const std::vector<std::string>& unit_names,
                                               const GraphPassOptions& passes, const std::vector<ExampleInput>& inputs,
                                               at::Device device) {
  const auto module = file.module();
  const auto analysis = analyze_model(module, file.path());
  rewrite_graphs(module, passes);
  GraphPassOptions unfused = passes;  // the calls of layers must stay
  unfused.kernels.fused_regions = false;
  passes::PassContext context{
      .module = module, .options = unfused, .device = device, .smallest_dtype = passes.compute_dtype};
  passes::run_passes(graph_passes(), passes::PassNeeds::kDevice, passes::PassTarget::kModel, context);
  const auto binding = bind_parameters(module, analysis.mutable_parameters);
  return measure_layers({module, graph::find_unit_candidates(module, unit_names), passes.compute_dtype}, binding,
                        inputs, device);
}

StagePlan plan_script_stages(const ScriptFile& file, const std::vector<std::string>& unit_names,
                             const GraphPassOptions& passes, const StageOptions& options) {
  const auto module = file.module();
  const auto analysis = analyze_model(module, file.path());
  rewrite_graphs(module, passes);
  const auto binding = bind_parameters(module, analysis.mutable_parameters);
  return plan_stages({module, graph::find_unit_candidates(module, unit_names), passes.compute_dtype}, options, binding);
}

ProbeReport probe_script_split(const ScriptFile& file, const std::vector<std::string>& unit_names,
                               const GraphPassOptions& passes, const placement::TensorParallelOptions& tensor) {
  const auto module = file.module();
  const auto analysis = analyze_model(module, file.path());
  rewrite_graphs(module, passes);
  const auto binding = bind_parameters(module, analysis.mutable_parameters);
  const auto metadata = read_model_metadata(file.path());
  return tensor_parallel::probe_on_virtual_ranks(
      {module, graph::find_unit_candidates(module, unit_names), binding.table, binding.locations, metadata.inputs},
      tensor);
}

void write_model_skeleton(const std::string& model_path, const std::string& out_path) {
  const auto module = file::load_mapped_module(model_path);
  rewrites::bind_training_flag(module);  // so that eval() works on the model in the checkpoint
  file::write_skeleton_file(module, read_model_metadata(model_path), out_path);
}

}  // namespace dslaunch::runtime::model::torchscript
