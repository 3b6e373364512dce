// From a TorchScript file to a model that runs: load, rewrite the graphs, analyze them, bind parameters and units.
// Several threads may load models at once.
#pragma once
#include <memory>
#include <string>
#include <vector>

#include "runtime/model/interface/graph_pass_options.hpp"
#include "runtime/model/interface/model.hpp"
#include "runtime/model/placement/tensor_parallel_options.hpp"
#include "runtime/model/torchscript/script_file.hpp"

namespace dslaunch::runtime::model::torchscript {

// `unit_names`: class names or module paths; empty: repeated blocks and large leaf modules. Throws UserError as
// ScriptFile::module() does, and 65 when it is not a model that can be trained. `tensor`: of more than one rank, the
// model is that of one of them: its table says which part of each parameter the rank has, ModelFacts::placements what
// is split, and RunnableModel::set_tensor_group() gives it the other ranks.
std::unique_ptr<Model> load_script_model(const ScriptFile& file, const std::vector<std::string>& unit_names,
                                         const GraphPassOptions& passes = {},
                                         const placement::TensorParallelOptions& tensor = {});

// To predict tokens, not to train: its forward takes ids and returns logits (ModelFacts::tokens), cut out of that of
// the file (decoding/token_forward.hpp). Where it cannot be cut, it stays as in the file, and the facts say why.
// `keeps_units`: blocks stay units, which get their parameters when they run; else the root gets all. `tensor`: as of
// load_script_model(), without `keeps_units`.
std::unique_ptr<Model> load_token_model(const ScriptFile& file, const GraphPassOptions& passes, bool keeps_units,
                                        const placement::TensorParallelOptions& tensor = {});

// One stage of a pipeline: its part of the graph, and of the parameters and buffers those that it reads. The others
// stay in the file. Ranks that pass the same file and options, apart from the stage, get the same plan
// (ModelFacts::stage). Throws UserError(65) also for a model that cannot be cut so (plan_stages.hpp).
std::unique_ptr<Model> load_script_stage(const ScriptFile& file, const std::vector<std::string>& unit_names,
                                         const GraphPassOptions& passes, const StageOptions& options,
                                         const placement::TensorParallelOptions& tensor = {});

// Measures the layers of a model for StageOptions::measurement, by one or two forwards on the device with zeros for
// weights and inputs (`inputs`: the arrays of a micro batch in the order of forward's arguments). Needs memory for one
// parameter, and for the activations of a forward without gradients. On one rank, which passes the numbers to the
// others. An error: why this model cannot be measured; it can be cut by parameters.
Result<LayerMeasurement> measure_script_layers(const ScriptFile& file, const std::vector<std::string>& unit_names,
                                               const GraphPassOptions& passes, const std::vector<ExampleInput>& inputs,
                                               at::Device device);

// The plan alone, for a report; `options.stage` has no meaning.
StagePlan plan_script_stages(const ScriptFile& file, const std::vector<std::string>& unit_names,
                             const GraphPassOptions& passes, const StageOptions& options);

// Compares a split model with its unsplit form before a job exists (tensor_parallel/probe.hpp): all ranks of `tensor`
// are threads of this process, on the CPU.
ProbeReport probe_script_split(const ScriptFile& file, const std::vector<std::string>& unit_names,
                               const GraphPassOptions& passes, const placement::TensorParallelOptions& tensor);

// Writes the model's code and buffers with all parameters emptied (model_file.hpp).
void write_model_skeleton(const std::string& model_path, const std::string& out_path);

}  // namespace dslaunch::runtime::model::torchscript
