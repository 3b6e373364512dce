// The texts that a run writes at its evaluations (train.samples), and the values that are made of them. Rank 0 writes
// them. Where parameters are gathered unit by unit, the other ranks take part in the gathers of its forwards. Random
// numbers, buffers and gradients of the training stay as they are. One thread.
#pragma once
#include <c10/core/Device.h>
#include <c10/core/ScalarType.h>

#include <functional>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "comm/communicator.hpp"
#include "config/job_config.hpp"
#include "runtime/engine/inference/prompts.hpp"
#include "runtime/engine/inference/trained_model.hpp"
#include "runtime/engine/step/engine.hpp"
#include "runtime/precision/precision_choice.hpp"
#include "runtime/telemetry/step_metrics.hpp"

namespace dslaunch::runtime::engine::run {

// What the texts are written with. All references must outlive their user.
struct SampledModel {
  const model::Model& model;
  step::Engine& engine;
  std::string path;  // of the model file
  at::Device device;
  at::ScalarType compute_dtype = at::kFloat;
  const precision::ModelDtypes& dtypes;
};

struct WrittenSamples {
  std::vector<EvaluationSample> texts;  // in the order of the prompts
  NamedValues values;
};

class RunSamples {
 public:
  // `train`: with samples. Throws UserError (65, 66) for prompts and models that do not go together.
  RunSamples(const config::Train& train, const config::Checkpoint& checkpoint, SampledModel of,
             comm::Communicator& world, std::function<bool()> stop_requested);

  // Writes one token of each text, and makes the values of them. Throws UserError(65) on rank 0 for what does not work,
  // and for a value that decides about the run and is not there. Collective.
  void try_prompts();
  // With the parameters as they are after the engine's last step; empty but on rank 0. What fails that has worked
  // before costs these texts, or the values of the command, with a warning. When a stop is requested, of rank 0 or in
  // an exchange of the ranks, there are none. Collective.
  WrittenSamples write();

 private:
  WrittenSamples write(int64_t num_tokens);
  WrittenSamples write_on_rank_0(int64_t num_tokens, UnitParameters& units);
  WrittenSamples generate(int64_t num_tokens);
  void measure(WrittenSamples& written) const;
  void follow(UnitParameters& units);
  bool any_forward(bool own);
  void add_value(NamedValues& values, NamedValues::value_type value) const;
  void require_values(const NamedValues& values) const;

  const config::Samples& samples_;
  std::set<std::string> elsewhere_{"eval_loss", "eval_samples"};  // values of evaluations beside those of samples
  std::vector<std::string> decisive_;                             // values of samples that the run decides by
  const SampledModel of_;
  comm::Communicator& world_;
  const std::function<bool()> stop_requested_;
  const bool is_writer_;
  std::vector<inference::Prompt> prompts_;          // on rank 0
  std::unique_ptr<inference::TrainedModel> model_;  // likewise
  bool has_worked_ = false;
  bool stops_ = false;  // these texts are left unfinished
};

}  // namespace dslaunch::runtime::engine::run
