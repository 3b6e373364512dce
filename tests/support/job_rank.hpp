// One rank of a training job, set up as the trainer does it from a model file and the text of a config, for tests that
// drive its engine step by step; ranks are threads (mesh_threads.hpp). And what the ranks have in the end, put
// together.
#pragma once
#include <ATen/ATen.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "comm/groups.hpp"
#include "config/load.hpp"
#include "runtime/data/batch_loader.hpp"
#include "runtime/engine/run/checkpointing.hpp"
#include "runtime/engine/setup/initial_values.hpp"
#include "runtime/engine/setup/load_model.hpp"
#include "runtime/engine/setup/training_data.hpp"
#include "runtime/engine/step/engine.hpp"

namespace dslaunch::test {

using nlohmann::json;

inline config::LoadResult load_config(const json& text, int data_ranks) {
  auto loaded = config::load_text(text.dump(), "the test's config", config::Format::kHjson, {}, {data_ranks});
  config::throw_if_bad(loaded);
  return loaded;
}

class JobRank {
 public:
  // `adapt`: changes the model before anything else sees it.
  JobRank(const std::string& model_path, const json& text, const comm::Groups& groups,
          runtime::engine::step::EngineOptions options = {},
          const std::function<void(runtime::model::Model& model)>& adapt = {})
      : config(load_config(text, groups.mesh.data).config),
        model(runtime::engine::setup::load_model(model_path, config, runtime::device::Device(at::kCPU))) {
    if (adapt) adapt(*model);
    const auto precision = runtime::precision::choose_precision(config.precision, config.keep_batch_norm, at::kCPU);
    std::vector<std::string> buffers;
    for (const auto& [name, value] : model->tensors.buffers()) buffers.push_back(name);
    dtypes = runtime::precision::ModelDtypes(precision, buffers);
    const auto& recomputation = config.recomputation;
    if (recomputation.enabled) {
      model->runnable->set_recomputation(
          {.number_checkpoints = recomputation.number_checkpoints,
           .units_per_group = std::max<int64_t>(1, config.pipeline.activation_checkpoint_interval),
           .profile = recomputation.profile});
    }
    data = runtime::engine::setup::open_training_data(model->facts, config, groups.mesh, groups.world.rank(),
                                                      precision.compute_dtype, /*pin=*/false);
    options.dtypes = dtypes;
    options.total_steps = runtime::engine::setup::count_steps(data, config);
    engine = std::make_unique<runtime::engine::step::Engine>(
        *model, config, options, groups, runtime::engine::setup::initial_values(*model, config.init, model_path));
    loader = std::make_unique<runtime::BatchLoader>(data.train, data.train_arrays, config.data, data.loader,
                                                    runtime::DataPosition{});
  }

  runtime::engine::step::StepResult step() {
    const auto next = [&] { return runtime::engine::setup::on_device(loader->next(), at::kCPU); };
    return *engine->train_step(next, /*stop_requested=*/false);
  }
  // Those of a run in `run_dir`. The groups and the store must outlive them.
  std::unique_ptr<runtime::engine::run::Checkpointing> checkpoints(const std::string& model_path,
                                                                   const std::string& run_dir,
                                                                   const comm::Groups& groups,
                                                                   rendezvous::Store& store) {
    runtime::engine::run::CheckpointingOptions options;
    options.run_dir = run_dir;
    options.checkpoint = config.checkpoint;
    options.model_path = model_path;
    options.placement = {groups.world.rank(), groups.world.size(), groups.world.rank(), 0, 1, "this host"};
    options.dtypes = dtypes;
    return std::make_unique<runtime::engine::run::Checkpointing>(options, *model, *engine, groups, store, at::kCPU);
  }
  // As a run with --resume PATH does. Collective.
  void resume(const std::string& from, const comm::Groups& groups, rendezvous::Store& store) {
    runtime::engine::run::CheckpointingOptions options;
    options.run_dir = from + "/of_no_run";
    options.placement = {groups.world.rank(), groups.world.size(), groups.world.rank(), 0, 1, "this host"};
    options.saves = false;
    options.dtypes = dtypes;
    runtime::engine::run::Checkpointing(options, *model, *engine, groups, store, at::kCPU).resume(from);
  }
  // Copies of the state that this rank owns.
  std::vector<runtime::engine::step::OwnedState> owned_state() const {
    auto out = engine->owned_state();
    for (auto& owned : out) owned.values = owned.read_all().clone();
    return out;
  }
  // What forward reads on this rank, by parameter. Collective where parameters are gathered.
  std::map<std::string, at::Tensor> read_parameters() const {
    const at::NoGradGuard no_grad;
    auto& parameters = engine->unit_parameters();
    std::map<std::string, at::Tensor> out;
    const auto read = [&](int unit) {
      const auto& members = model->facts.table.units[static_cast<size_t>(unit)];
      const auto values = parameters.acquire(unit, runtime::UnitCall::kInference);
      const auto add = [&](const std::vector<int>& indices, const std::vector<at::Tensor>& tensors) {
        for (size_t i = 0; i < tensors.size(); ++i) {
          const auto& name = model->facts.table.parameters[static_cast<size_t>(indices[i])].name;
          if (tensors[i].defined()) out[name] = tensors[i].clone();
        }
      };
      add(members.parameters, values.parameters);
      add(members.frozen, values.frozen);
    };
    read(0);  // and hold it, as a forward does
    for (int unit = 1; unit < std::ssize(model->facts.table.units); ++unit) {
      read(unit);
      parameters.release(unit);
    }
    parameters.release(0);
    return out;
  }

  const config::JobConfig config;
  const std::unique_ptr<runtime::model::Model> model;
  runtime::precision::ModelDtypes dtypes;
  runtime::engine::setup::TrainingData data;
  std::unique_ptr<runtime::engine::step::Engine> engine;
  std::unique_ptr<runtime::BatchLoader> loader;
};

using States = std::map<std::pair<std::string, std::string>, at::Tensor>;  // by parameter and state; 1-D

// The whole states of a job from what its ranks own. Throws unless each element has one owner.
inline States join(const std::vector<std::vector<runtime::engine::step::OwnedState>>& ranks) {
  std::map<std::pair<std::string, std::string>, int64_t> num_owned;
  std::map<std::pair<std::string, std::string>, int64_t> num_elements;
  for (const auto& rank : ranks) {
    for (const auto& part : rank) {
      num_owned[{part.parameter, part.state}] += part.values.numel();
      int64_t& end = num_elements[{part.parameter, part.state}];
      end = std::max(end, part.begin + part.values.numel());
    }
  }
  if (num_owned != num_elements) throw std::logic_error("elements without an owner, or with two");
  States out;
  for (const auto& [key, count] : num_elements) out[key] = at::full({count}, std::nan(""));
  for (const auto& rank : ranks) {
    for (const auto& part : rank) {
      out[{part.parameter, part.state}].narrow(0, part.begin, part.values.numel()).copy_(part.values);
    }
  }
  return out;
}

// The first state in which the two differ, bit by bit; "" when there is none.
inline std::string first_difference(const States& a, const States& b) {
  if (a.size() != b.size()) return "the number of states";
  for (const auto& [key, values] : a) {
    const auto other = b.find(key);
    if (other == b.end() || !values.equal(other->second)) return key.second + " of " + key.first;
  }
  return {};
}

}  // namespace dslaunch::test
