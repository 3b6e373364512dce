#include "runtime/engine/training_data.hpp"

#include <algorithm>

#include "base/log.hpp"

namespace dslaunch::runtime {
namespace {

void add_limit(std::map<std::string, int64_t>& limits, const std::string& array, int64_t bound) {
  auto [entry, is_new] = limits.try_emplace(array, bound);
  if (!is_new) entry->second = std::min(entry->second, bound);
}

// Bounds that the model's graph reveals, by the array that feeds the argument.
std::map<std::string, int64_t> limits_of(const ModelSource& model, const config::JobConfig& config,
                                         const std::vector<ArrayInfo>& arrays, const ArraySelection& selection) {
  std::vector<size_t> arguments = selection.inputs;
  if (config.loss.empty()) arguments.insert(arguments.end(), selection.labels.begin(), selection.labels.end());
  std::map<std::string, int64_t> limits;
  for (const auto& limit : model.index_limits()) {
    if (limit.input < arguments.size()) add_limit(limits, arrays[arguments[limit.input]].name, limit.bound);
  }
  if (config.loss == "cross_entropy" && model.num_output_classes()) {
    for (size_t label : selection.labels) add_limit(limits, arrays[label].name, *model.num_output_classes());
  }
  for (const auto& [array, bound] : limits) log::debug("array '{}' must stay below {}", array, bound);
  return limits;
}

// Arrays that carry the names of forward's arguments go there; what else the data holds is left out, and that is said.
void name_unused(const std::vector<ArrayInfo>& arrays, const ArraySelection& selection) {
  for (size_t i = 0; i < arrays.size(); ++i) {
    const bool used = std::count(selection.inputs.begin(), selection.inputs.end(), i) +
                          std::count(selection.labels.begin(), selection.labels.end(), i) >
                      0;
    if (!used) log::info("array '{}' of the data goes to no argument of forward", arrays[i].name);
  }
}

}  // namespace

TrainingData open_training_data(const ModelSource& model, const config::JobConfig& config, int rank, int world_size,
                                at::ScalarType compute_dtype, bool pin) {
  const ForwardArguments forward{model.inputs().names, model.inputs().num_required, config.loss.empty()};
  TrainingData out;
  out.loader = {rank, world_size, config.batch, {compute_dtype, pin, {}}};
  out.eval_loader = out.loader;
  if (!config.data.train.empty() || config.data.synthetic_train) {
    out.train = open_train_samples(config.data);
    out.train_arrays = select_arrays(out.train->arrays(), config.data.inputs, config.data.labels, forward);
    if (rank == 0) name_unused(out.train->arrays(), out.train_arrays);
    out.loader.assembly.limits = limits_of(model, config, out.train->arrays(), out.train_arrays);
  }
  if (!config.data.eval.empty()) {
    out.eval = open_eval_samples(config.data);
    out.eval_arrays = select_arrays(out.eval->arrays(), config.data.inputs, config.data.labels, forward);
    out.eval_loader.assembly.limits = limits_of(model, config, out.eval->arrays(), out.eval_arrays);
  }
  return out;
}

}  // namespace dslaunch::runtime
