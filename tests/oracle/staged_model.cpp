// staged_model MODEL.pt DATA.safetensors STAGES PARTITION fp32|bf16|chunks [UNIT ...]
//
// One forward and backward of a model cut into stages, one after the other in this process, beside the whole model.
// DATA has an array for each argument of forward. Prints a JSON document: the plan, both losses, and by parameter
// whether its gradient has the bits of the whole model's. "chunks": in fp32 with heads by chunks of rows; also how many
// there are, and the largest error of a gradient beside the model without.
#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <torch/csrc/autograd/autograd.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.hpp"
#include "runtime/model/graph/walk.hpp"
#include "runtime/model/torchscript/file/model_file.hpp"
#include "runtime/model/torchscript/graph_passes.hpp"
#include "runtime/model/torchscript/load_script_model.hpp"
#include "runtime/state/safetensors_file.hpp"
#include "runtime/state/unit_parameters.hpp"

using namespace dslaunch;
using namespace dslaunch::runtime;
using namespace dslaunch::runtime::model;
using Json = nlohmann::ordered_json;
using Gradients = std::map<std::string, at::Tensor>;

namespace {

// What the run computes in.
struct Types {
  GraphPassOptions passes;
  at::ScalarType of(at::ScalarType own) const { return at::isFloatingType(own) ? passes.compute_dtype : own; }
};

// The values of the file, and the sums of their gradients.
class FileParameters : public UnitParameters {
 public:
  FileParameters(Model& model, const Types& types) : model_(model), types_(types) {
    model.to_device(
        at::kCPU, [&](const std::string&, at::ScalarType own) { return types.of(own); },
        std::vector<bool>(model.facts.table.parameters.size(), false));
    model.runnable->set_unit_parameters(this);
  }
  UnitValues acquire(int unit, UnitCall) override {
    UnitValues out;
    for (int p : parameters_of(unit)) {
      const auto& value = model_.initial.value(p);
      out.parameters.push_back(value.to(types_.of(value.scalar_type())).variable_data());
    }
    out.frozen.resize(model_.facts.table.units[static_cast<size_t>(unit)].frozen.size());
    return out;
  }
  void release(int) override {}
  void prepare_backward(int) override {}
  void take_gradients(int unit, std::vector<at::Tensor> gradients_of_unit) override {
    for (size_t i = 0; i < gradients_of_unit.size(); ++i) {
      if (!gradients_of_unit[i].defined()) continue;
      auto& sum = gradients[model_.facts.table.parameters[static_cast<size_t>(parameters_of(unit)[i])].name];
      sum = sum.defined() ? sum + gradients_of_unit[i] : gradients_of_unit[i].clone();
    }
  }
  Gradients gradients;

 private:
  const std::vector<int>& parameters_of(int unit) const {
    return model_.facts.table.units[static_cast<size_t>(unit)].parameters;
  }
  Model& model_;
  const Types types_;
};

std::vector<at::Tensor> inputs_for(const Model& model, const SafetensorsFile& data, const Types& types) {
  std::vector<at::Tensor> out;
  for (const auto& name : model.facts.inputs.names) {
    const auto* entry = data.find(name);
    if (entry != nullptr) out.push_back(data.tensor(*entry).to(types.of(entry->dtype), false, /*copy=*/true));
  }
  return out;
}

struct Step {
  double loss = 0;
  Gradients gradients;
};

Step step_of_whole(const std::string& path, const std::vector<std::string>& units, const SafetensorsFile& data,
                   const Types& types) {
  auto model = torchscript::load_script_model(path, units, types.passes);
  FileParameters parameters(*model, types);
  at::manual_seed(1);
  const auto loss = model->runnable->forward(inputs_for(*model, data, types)).first;
  loss.backward();
  return {loss.item<double>(), std::move(parameters.gradients)};
}

CarriedValues received(const CarriedValues& sent) {
  auto out = allocate(layout_of(sent), at::kCPU);
  const at::NoGradGuard no_grad;
  for (size_t i = 0; i < sent.tensors.size(); ++i) out.tensors[i].copy_(sent.tensors[i]);
  return out;
}

Step step_of_stages(const std::vector<std::unique_ptr<Model>>& stages, const SafetensorsFile& data,
                    const Types& types) {
  std::vector<std::unique_ptr<FileParameters>> parameters;
  for (const auto& stage : stages) parameters.push_back(std::make_unique<FileParameters>(*stage, types));
  std::vector<CarriedValues> given(stages.size()), sent(stages.size());
  at::manual_seed(1);
  at::Tensor loss;
  for (size_t i = 0; i < stages.size(); ++i) {
    if (i > 0) given[i] = received(sent[i - 1]);
    auto output = stages[i]->runnable->run_stage(inputs_for(*stages[i], data, types), given[i]);
    sent[i] = std::move(output.carried);
    loss = output.result.first;
  }
  loss.backward();
  Step out{loss.item<double>(), {}};
  for (size_t i = stages.size(); i-- > 0;) {
    if (i + 1 < stages.size()) {
      std::vector<at::Tensor> outputs, gradients;
      for (size_t t = 0; t < sent[i].tensors.size(); ++t) {
        if (!given[i + 1].tensors[t].grad().defined()) continue;
        outputs.push_back(sent[i].tensors[t]);
        gradients.push_back(given[i + 1].tensors[t].grad());
      }
      torch::autograd::backward(outputs, gradients);
    }
    for (auto& [name, gradient] : parameters[i]->gradients) {
      auto& sum = out.gradients[name];
      sum = sum.defined() ? sum + gradient : gradient;
    }
  }
  return out;
}

// Of the loss and of all gradients, relative to a gradient's norm. One that is zero but for rounding (the bias of keys
// in attention) is compared with a thousandth of the largest.
double largest_error(const Step& found, const Step& expected) {
  const auto norm = [](const at::Tensor& tensor) { return tensor.norm().item<double>(); };
  double largest = 0, out = std::abs(found.loss / expected.loss - 1);
  for (const auto& [name, gradient] : expected.gradients) largest = std::max(largest, norm(gradient));
  for (const auto& [name, gradient] : expected.gradients) {
    out = std::max(out, norm(found.gradients.at(name) - gradient) / std::max(norm(gradient), 1e-3 * largest));
  }
  return out;
}

int count_chunked(const std::string& path, const GraphPassOptions& options) {
  const auto module = file::load_mapped_module(path);
  passes::PassContext context{.module = module, .options = options};
  passes::run_passes(torchscript::graph_passes(), passes::PassNeeds::kGraphs, passes::PassTarget::kModel, context);
  int count = 0;
  graph::for_every_node(module, [&](const torch::jit::Node* node) {
    count += std::string_view(node->kind().toQualString()) == "dslaunch::chunked_cross_entropy" ? 1 : 0;
  });
  return count;
}

Json plan_json(const StagePlan& plan) {
  Json out{{"layers", Json::array()}, {"stages", Json::array()}, {"tied", Json::array()}};
  for (const auto& layer : plan.layers) {
    out["layers"].push_back({{"path", layer.path},
                             {"class", layer.class_name},
                             {"parameters", layer.num_parameters},
                             {"flops", layer.flops.value_or(-1)}});
  }
  for (const auto& stage : plan.stages) {
    Json carried = Json::array();
    for (const auto& value : stage.carried_in) {
      carried.push_back({{"origin", value.origin}, {"number", value.is_number}, {"bytes", value.bytes.value_or(-1)}});
    }
    out["stages"].push_back({{"first_layer", stage.first_layer},
                             {"num_layers", stage.num_layers},
                             {"carried", carried},
                             {"inputs", stage.inputs},
                             {"parameters", stage.parameters},
                             {"flops", stage.flops.value_or(-1)}});
  }
  for (const auto& tied : plan.tied) out["tied"].push_back({{"name", tied.name}, {"stages", tied.stages}});
  out["report"] = describe_stages(plan);
  out["notes"] = plan.notes;
  return out;
}

int run(int argc, char** argv) {
  const std::string path = argv[1];
  const SafetensorsFile data(argv[2]);
  StageOptions options;
  options.num_stages = std::atoi(argv[3]);
  options.partition = argv[4];
  const std::vector<std::string> units(argv + 6, argv + argc);
  Types types;
  const std::string mode = argv[5];
  if (mode == "bf16") types.passes.compute_dtype = at::kBFloat16;
  types.passes.chunks_cross_entropy = types.passes.kernels.chunked_cross_entropy = mode == "chunks";
  const auto whole = torchscript::load_script_model(path, units);
  std::vector<ExampleInput> inputs;
  for (const auto& name : whole->facts.inputs.names) {
    if (const auto* entry = data.find(name)) inputs.push_back({entry->shape, entry->dtype});
  }
  const auto measured = torchscript::measure_script_layers(path, units, types.passes, inputs, at::kCPU);
  if (!measured.ok()) std::fprintf(stderr, "not measured: %s\n", measured.error().c_str());
  if (measured.ok()) options.measurement = *measured;
  std::vector<std::unique_ptr<Model>> stages;
  for (options.stage = 0; options.stage < options.num_stages; ++options.stage) {
    stages.push_back(torchscript::load_script_stage(path, units, types.passes, options));
  }
  const Step found = step_of_stages(stages, data, types), expected = step_of_whole(path, units, data, types);
  Json out{{"loss", found.loss}, {"whole_loss", expected.loss}, {"gradients", Json::object()}};
  for (const auto& [name, gradient] : expected.gradients) {
    const auto of_stages = found.gradients.find(name);
    const bool is_equal = of_stages != found.gradients.end() && at::equal(of_stages->second, gradient);
    out["gradients"][name] = is_equal;
  }
  if (types.passes.chunks_cross_entropy) {
    out["num_chunked"] = count_chunked(path, types.passes);
    out["largest_error"] = largest_error(expected, step_of_whole(path, units, data, {}));
  }
  out["num_gradients"] = found.gradients.size();
  out["plan"] = plan_json(stages[0]->facts.stage->plan);
  std::puts(out.dump().c_str());
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 6) {
    std::fputs("usage: staged_model MODEL.pt DATA.safetensors STAGES PARTITION fp32|bf16|chunks [UNIT ...]\n", stderr);
    return 64;
  }
  try {
    return run(argc, argv);
  } catch (const Error& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return to_int(error.code());
  }
}
