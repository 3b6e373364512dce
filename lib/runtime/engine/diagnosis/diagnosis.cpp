#include "runtime/engine/diagnosis/diagnosis.hpp"

#include <ATen/ATen.h>

#include <algorithm>

#include "base/format.hpp"
#include "base/scope_exit.hpp"
#include "runtime/data/batch_assembly.hpp"
#include "runtime/data/sample_order.hpp"
#include "runtime/engine/diagnosis/finite_check.hpp"
#include "runtime/sharding/all_gather_object.hpp"
#include "runtime/state/random_state.hpp"

namespace dslaunch::runtime::engine::diagnosis {
namespace {

// Reads the samples of one rank's micro batches again, with their indices.
class SampleReplay {
 public:
  SampleReplay(const FailedRun& run, DataPosition start)
      : data_(run.data),
        planner_(options_of(run), start),
        assembler_(run.data.train, run.data.train_arrays, assembly()) {}

  Batch next() {
    plan_ = planner_.next();
    return assembler_.assemble(plan_);
  }
  const std::vector<int64_t>& samples() const { return plan_.samples; }

  // Checks the data itself for NaNs and infinities; names the array, sample and file of each value.
  void check(FiniteCheck& found, const Batch& batch) const {
    check(found, data_.train_arrays.inputs, batch.inputs);
    check(found, data_.train_arrays.labels, batch.labels);
  }

 private:
  static TrainingPlanner::Options options_of(const FailedRun& run) {
    const BatchShape shape{run.config.batch.micro_batch, run.config.batch.accumulation, run.groups.mesh.data};
    return {.num_samples = run.data.train->num_samples(),
            .shape = shape,
            .rank = run.groups.own.data,
            .shuffle = run.config.data.shuffle,
            .seed = run.config.data.seed,
            .drop_last = run.config.data.drop_last};
  }
  AssemblyOptions assembly() const {
    AssemblyOptions out = data_.loader.assembly;
    out.pin = false;
    return out;
  }
  void check(FiniteCheck& found, const std::vector<size_t>& arrays, const std::vector<at::Tensor>& tensors) const {
    for (size_t i = 0; i < arrays.size(); ++i) {
      for (int64_t row = 0; row < tensors[i].size(0); ++row) {
        const int64_t sample = plan_.samples[static_cast<size_t>(row)];
        found.check(fmt::format("array '{}' of the data, sample {} (file: {}),", data_.train->arrays()[arrays[i]].name,
                                sample, data_.train->describe(arrays[i], sample)),
                    tensors[i][row]);
      }
    }
  }

  const setup::TrainingData& data_;
  TrainingPlanner planner_;
  BatchAssembler assembler_;
  MicroBatchPlan plan_;
};

std::string list_samples(const std::vector<int64_t>& samples) {
  constexpr size_t kMax = 8;
  const std::vector<int64_t> shown(samples.begin(),
                                   samples.begin() + static_cast<std::ptrdiff_t>(std::min(kMax, samples.size())));
  return fmt::format("samples {}{}", fmt::join(shown, ", "), samples.size() > kMax ? ", ..." : "");
}

// Combines the findings in the input data and in the model. A NaN in the data is a sufficient explanation.
std::string combine_findings(const FiniteCheck& data, const FiniteCheck& model) {
  if (data.has_nan()) return data.finding();
  return data.finding().empty() ? model.finding() : model.finding() + "; before that, " + data.finding();
}

// This rank's first finding: "MICRO_BATCH text"; "" when all values are finite. Every rank makes the same calls.
std::string search(const FailedRun& run, const StepStart& start, bool in_backward) {
  FiniteCheck in_data(run.model.facts.table, run.engine.unit_parameters());
  FiniteCheck in_model(run.model.facts.table, run.engine.unit_parameters());
  SampleReplay samples(run, start.position);
  std::string found;
  run.model.runnable->set_unit_observer(&in_model);
  const ScopeExit unobserved([&run] { run.model.runnable->set_unit_observer(nullptr); });
  for (int64_t index = 0; index < run.config.batch.accumulation; ++index) {
    in_data.reset();
    in_model.reset();
    Batch batch = samples.next();
    samples.check(in_data, batch);
    const at::Tensor loss =
        run.engine.recompute_loss(setup::on_device(std::move(batch), run.device), in_model, in_backward);
    if (!found.empty() || (!in_backward && loss.isfinite().item<bool>())) continue;  // the loss is not affected
    in_model.check("the loss, computed from finite values,", loss);
    if (in_model.finding().empty()) continue;
    found = fmt::format("{} ({}): {}", index, list_samples(samples.samples()), combine_findings(in_data, in_model));
  }
  return found;
}

}  // namespace

std::string diagnose(const FailedRun& run, const StepStart& start, bool loss_is_finite) {
  restore_random_state(start.random_state, run.device);
  const auto findings = gather_texts(run.groups.world, run.device, search(run, start, loss_is_finite));
  size_t first = findings.size();
  for (size_t rank = 0; rank < findings.size(); ++rank) {
    if (findings[rank].empty()) continue;
    if (first == findings.size() || std::stoll(findings[rank]) < std::stoll(findings[first])) first = rank;
  }
  if (first < findings.size()) return fmt::format("rank {}, micro batch {}", first, findings[first]);
  return loss_is_finite ? "every gradient is finite when the step is computed again: their sum over micro batches and "
                          "ranks overflowed, or the computation is not deterministic"
                        : "every loss is finite when the step is computed again: the computation is not deterministic";
}

}  // namespace dslaunch::runtime::engine::diagnosis
