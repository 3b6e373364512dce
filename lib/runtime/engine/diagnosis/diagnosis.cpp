#include "runtime/engine/diagnosis/diagnosis.hpp"

#include <ATen/ATen.h>

#include <algorithm>
#include <array>
#include <map>
#include <optional>
#include <sstream>

#include "base/format.hpp"
#include "base/scope_exit.hpp"
#include "runtime/data/batch_assembly.hpp"
#include "runtime/data/sample_order.hpp"
#include "runtime/device/random_state.hpp"
#include "runtime/engine/diagnosis/finite_check.hpp"
#include "runtime/sharding/all_gather_object.hpp"

namespace dslaunch::runtime::engine::diagnosis {
namespace {

// Reads the samples of one rank's micro batches again, with their indices.
class SampleReplay {
 public:
  SampleReplay(const FailedRun& run, const StepStart& start)
      : data_(run.data),
        next_plan_(plan_training(training_order(*run.data.train, run.config.data, run.data.loader,
                                                {start.position, start.step - 1, run.data.schedule}))),
        assembler_(run.data.train, run.data.train_arrays, assembly()) {}

  Batch next() {
    plan_ = next_plan_();
    return assembler_.assemble(plan_);
  }
  const std::vector<int64_t>& samples() const { return plan_.samples; }

  // Checks the data itself for NaNs and infinities; names the array, sample and file of each value.
  void check(FiniteCheck& found, const Batch& batch) const {
    check(found, data_.train_arrays.inputs, batch.inputs);
    check(found, data_.train_arrays.labels, batch.labels);
  }

 private:
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
  std::function<MicroBatchPlan()> next_plan_;
  BatchAssembler assembler_;
  MicroBatchPlan plan_;
};

std::string list_samples(const std::vector<int64_t>& samples) {
  constexpr size_t kMax = 8;
  const std::vector<int64_t> shown(samples.begin(),
                                   samples.begin() + static_cast<std::ptrdiff_t>(std::min(kMax, samples.size())));
  return fmt::format("samples {}{}", fmt::join(shown, ", "), samples.size() > kMax ? ", ..." : "");
}

// The array of labels of which none counts in a micro batch: the mean over them is 0/0. Empty: there is none.
std::string uncounted_labels(const FailedRun& run, const Batch& batch) {
  const auto& arrays = run.data.train->arrays();
  const auto& selection = run.data.train_arrays;
  if (!batch.labels.empty() && batch.num_labels == 0) return arrays[selection.labels[0]].name;
  for (const auto& argument : run.model.facts.index_arguments) {  // labels that the config calls inputs
    if (!argument.is_label || argument.input >= batch.inputs.size()) continue;
    if (batch.inputs[argument.input].eq(kIgnoredLabel).all().item<bool>()) {
      return arrays[selection.inputs[argument.input]].name;
    }
  }
  return {};
}

// What a rank has found in one of its micro batches. As a text, one line each, for all ranks.
struct Finding {
  int64_t micro_batch = 0;
  std::string samples;
  std::string data;  // in the data, by itself a sufficient explanation if it is a NaN
  bool data_has_nan = false;
  std::string uncounted;      // labels, by themselves a sufficient explanation of a loss that is NaN
  std::string nan, infinity;  // in the model; empty: none

  std::string to_text() const {
    return fmt::format("{}\n{}\n{}\n{}\n{}\n{}\n{}\n", micro_batch, samples, data, data_has_nan ? 1 : 0, uncounted, nan,
                       infinity);
  }
  static Finding of_text(const std::string& text) {
    std::istringstream in(text);
    std::array<std::string, 7> lines;
    for (auto& line : lines) std::getline(in, line);
    return {std::stoll(lines[0]), lines[1], lines[2], lines[3] == "1", lines[4], lines[5], lines[6]};
  }
};

// Whether a micro batch explains the failure: on a pipeline, what one of its stages says.
bool is_explained(const FailedRun& run, bool in_backward, const at::Tensor& loss, const FiniteCheck& in_model) {
  struct Outcome {
    bool loss_is_finite = true, has_finding = false;
  };
  const Outcome own{loss.isfinite().item<bool>(), !in_model.finding().empty()};
  const auto of_stages =
      run.groups.pipe != nullptr ? gather_values(*run.groups.pipe, run.device, own) : std::vector<Outcome>{own};
  if (!in_backward && of_stages.back().loss_is_finite) return false;  // the loss is not affected
  return std::any_of(of_stages.begin(), of_stages.end(), [](const Outcome& outcome) { return outcome.has_finding; });
}

// What this rank has found in the first micro batch that explains the failure; "" when there is none. Every rank makes
// the same calls.
std::string search(const FailedRun& run, const StepStart& start, bool in_backward) {
  FiniteCheck in_data(run.model.facts.table, run.engine.unit_parameters());
  FiniteCheck in_model(run.model.facts.table, run.engine.unit_parameters());
  SampleReplay samples(run, start);
  std::string found;
  run.model.runnable->set_unit_observer(&in_model);
  const ScopeExit unobserved([&run] { run.model.runnable->set_unit_observer(nullptr); });
  for (int64_t index = 0; index < run.config.batch.accumulation; ++index) {
    in_data.reset();
    in_model.reset();
    Batch batch = samples.next();
    samples.check(in_data, batch);
    const std::string uncounted = in_backward ? "" : uncounted_labels(run, batch);
    const at::Tensor loss =
        run.engine.recompute_loss(setup::on_device(std::move(batch), run.device), in_model, in_backward);
    if (in_backward || !loss.isfinite().item<bool>()) {
      in_model.check("the loss, computed from finite values,", loss);
    }
    if (!is_explained(run, in_backward, loss, in_model) || !found.empty()) continue;
    found = Finding{.micro_batch = index,
                    .samples = list_samples(samples.samples()),
                    .data = in_data.finding(),
                    .data_has_nan = in_data.has_nan(),
                    .uncounted = uncounted,
                    .nan = in_model.nan(),
                    .infinity = in_model.infinity()}
                .to_text();
  }
  return found;
}

constexpr const char* kAdvice = "Lower the learning rate, clip gradients, or look at these samples";

// Of the stages of one pipeline, in the order in which they compute: the first NaN, and an infinity before it.
Diagnosis describe(const FailedRun& run, const std::map<int, Finding>& of_ranks, bool in_backward) {
  std::vector<int> order;
  for (const auto& [rank, finding] : of_ranks) order.push_back(rank);
  if (in_backward) std::reverse(order.begin(), order.end());
  std::optional<int> nan, infinity;
  for (int rank : order) {
    if (!infinity && !of_ranks.at(rank).infinity.empty()) infinity = rank;
    if (!nan && !of_ranks.at(rank).nan.empty()) nan = rank;
    if (nan) break;
  }
  const int rank = nan.value_or(infinity.value_or(order.front()));
  const auto name = [&](int of) {
    const std::string place = comm::describe_place(run.groups.mesh, of);
    return place.empty() ? fmt::format("rank {}", of) : fmt::format("rank {} ({})", of, place);
  };
  const Finding& own = of_ranks.at(rank);
  const auto begin = fmt::format("{}, micro batch {} ({}): ", name(rank), own.micro_batch, own.samples);
  if (own.data_has_nan) return {begin + own.data, kAdvice};
  if (!own.uncounted.empty()) {
    return {fmt::format("{}no label counts: array '{}' of the data has only {} there, and a mean over no labels is 0/0",
                        begin, own.uncounted, kIgnoredLabel),
            "Leave such samples out, or set \"loss_average\": \"tokens\", with which a micro batch without labels has "
            "weight 0"};
  }
  std::string text = begin + (nan ? own.nan : own.infinity);
  if (nan && infinity) {
    text += fmt::format("; before that, {}{}", *infinity == rank ? "" : "on " + name(*infinity) + ", ",
                        of_ranks.at(*infinity).infinity);
  }
  return {own.data.empty() ? text : text + "; before that, " + own.data, kAdvice};
}

}  // namespace

Diagnosis diagnose(const FailedRun& run, const StepStart& start, bool loss_is_finite) {
  device::restore_random_state(start.random_state, run.device);
  const auto texts = gather_texts(run.groups.world, run.device, search(run, start, loss_is_finite));
  std::map<int, std::map<int, Finding>> pipelines;  // by data rank, by rank
  for (size_t rank = 0; rank < texts.size(); ++rank) {
    if (texts[rank].empty()) continue;
    const int index = static_cast<int>(rank);
    pipelines[run.groups.mesh.coordinates(index).data][index] = Finding::of_text(texts[rank]);
  }
  const auto first = std::min_element(pipelines.begin(), pipelines.end(), [](const auto& a, const auto& b) {
    return a.second.begin()->second.micro_batch < b.second.begin()->second.micro_batch;
  });
  if (first != pipelines.end()) return describe(run, first->second, loss_is_finite);
  if (loss_is_finite && run.engine.updates_early()) {
    return {
        "every gradient is finite when the step is computed again: their sum over micro batches and ranks overflowed, "
        "the computation is not deterministic, or what caused it has changed with the units that were updated during "
        "backward (a large gradient_clipping updates them after it)",
        kAdvice};
  }
  if (loss_is_finite) {
    return {
        "every gradient is finite when the step is computed again: their sum over micro batches and ranks overflowed, "
        "or the computation is not deterministic",
        kAdvice};
  }
  return {"every loss is finite when the step is computed again: the computation is not deterministic", kAdvice};
}

}  // namespace dslaunch::runtime::engine::diagnosis
