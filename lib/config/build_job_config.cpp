// Builds the typed sections from the checked table: bound members first, then those that several keys decide.
#include <algorithm>

#include "config/fill.hpp"
#include "config/job_config.hpp"
#include "config/parameter_groups.hpp"
#include "config/rules.hpp"
#include "config/synthetic.hpp"

namespace dslaunch::config {
namespace {

void derive_optimizer(const Settings& settings, Optimizer& out) {
  if (out.type == OptimizerType::kMuon) out.lr = settings.number("optimizer.params.adam_lr");
  if (out.type == OptimizerType::kNadam || out.type == OptimizerType::kRadam) {
    out.decoupled_weight_decay = settings.boolean("optimizer.params.decoupled_weight_decay");
  } else if (out.type != OptimizerType::kAdam) {
    out.decoupled_weight_decay = true;
  }
  const auto pair = [&](const char* path, double& first, double& second) {
    const auto& items = settings.at(path).value.items;
    first = items.at(0).number;
    second = items.at(1).number;
  };
  pair("optimizer.params.etas", out.eta_minus, out.eta_plus);
  pair("optimizer.params.step_sizes", out.min_step_size, out.max_step_size);
  out.groups = parameter_groups(settings);
}

void derive_data(const Settings& settings, Data& out) {
  if (out.train.size() == 1 && out.train.front() == "synthetic") {
    out.train.clear();
    out.synthetic_train = true;
  }
  out.synthetic = synthetic_arrays(settings);
}

}  // namespace

JobConfig build_job_config(const Settings& settings) {
  JobConfig out;
  fill(out, settings);
  derive_optimizer(settings, out.optimizer);
  derive_data(settings, out.data);
  out.zero.hpz_partition_size = std::max<int64_t>(1, out.zero.hpz_partition_size);
  build_data_efficiency(settings, out.data_efficiency);
  build_metrics(settings, out.train);
  build_samples(settings, out.train.samples);
  build_offload(settings, out.zero);
  build_pipeline(settings, out.pipeline);
  build_tensor_parallel(settings, out.tensor_parallel);
  build_precision(settings, out);
  out.deepspeed_lines = settings.given("steps_per_print");
  return out;
}

}  // namespace dslaunch::config
