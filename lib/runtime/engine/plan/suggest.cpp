#include "runtime/engine/plan/suggest.hpp"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/byte_size.hpp"
#include "base/dump_json.hpp"
#include "base/error.hpp"
#include "base/format.hpp"
#include "config/report.hpp"
#include "runtime/engine/plan/estimate_activations.hpp"
#include "runtime/pipeline/schedule.hpp"
#include "runtime/pipeline/timeline.hpp"
#include "runtime/precision/precision_choice.hpp"

namespace dslaunch::runtime::engine::plan {
namespace {

using config::OffloadDevice;
using memory_plan::Fit;
using Json = nlohmann::ordered_json;

bool uses_files(const PlannedSetting& setting) {
  return setting.optimizer == OffloadDevice::kFile || setting.parameters == OffloadDevice::kFile;
}

// All settings of the job with other tensor ranks, another micro batch and with or without recomputation.
class Search {
 public:
  explicit Search(const SuggestInputs& inputs)
      : inputs_(inputs), own_(load_job(inputs.job).config), own_estimate_(largest_estimate(own_)) {}

  std::vector<Candidate> run() {
    std::vector<Candidate> out;
    for (const auto& [tensor_ranks, stages] : inputs_.stages) {
      const int64_t ranks_of_model = own_.pipeline.stages * tensor_ranks;
      const int64_t data_ranks = inputs_.job.world_size / ranks_of_model;
      if (data_ranks * ranks_of_model != inputs_.job.world_size || own_.batch.train_batch % data_ranks != 0) continue;
      const int64_t samples = own_.batch.train_batch / data_ranks;  // of a rank and step
      for (const bool recomputes : {false, true}) {
        for (int64_t accumulation = 1; accumulation <= samples; ++accumulation) {
          if (samples % accumulation == 0) add(tensor_ranks, recomputes, samples / accumulation, accumulation, out);
        }
      }
    }
    return out;
  }

 private:
  bool is_own(const config::JobConfig& config, const PlannedSetting& setting) const {
    return setting.is_own && config.tensor_parallel.size == own_.tensor_parallel.size &&
           config.batch.micro_batch == own_.batch.micro_batch &&
           config.recomputation.enabled == own_.recomputation.enabled;
  }

  void add(int tensor_ranks, bool recomputes, int64_t micro_batch, int64_t accumulation,
           std::vector<Candidate>& out) const {
    JobSource job = inputs_.job;
    std::vector<config::Override> batch;
    const auto set = [&](const char* key, const std::string& value) { batch.push_back({key, value, "plan"}); };
    if (tensor_ranks != own_.tensor_parallel.size) set("tensor_parallel.size", std::to_string(tensor_ranks));
    set("train_batch_size", std::to_string(own_.batch.train_batch));
    set("train_micro_batch_size_per_gpu", std::to_string(micro_batch));
    set("gradient_accumulation_steps", std::to_string(accumulation));
    set("activation_checkpointing.enabled", recomputes ? "true" : "false");
    job.overrides.insert(job.overrides.end(), batch.begin(), batch.end());
    if (!config::load_file(job.config_path, job.overrides, {.world_size = job.world_size}).ok()) return;
    for (auto& setting : list_settings(job)) {
      const bool own = is_own(setting.config, setting);
      if (uses_files(setting) && !own && (inputs_.rates.file_bytes == 0 || !names_directories(setting))) continue;
      setting.is_own = own;
      setting.overrides.insert(setting.overrides.begin(), batch.begin(), batch.end());
      out.push_back(plan(std::move(setting)));
    }
  }

  // A directory that the user has named, not one of a plan.
  bool names_directories(const PlannedSetting& setting) const {
    return (setting.optimizer != OffloadDevice::kFile || !own_.zero.offload_optimizer.nvme_path.empty()) &&
           (setting.parameters != OffloadDevice::kFile || !own_.zero.offload_param.nvme_path.empty());
  }

  Candidate plan(PlannedSetting setting) const {
    const PlanReport& report = inputs_.report;
    Candidate out;
    out.setting = std::move(setting);
    const config::JobConfig& config = out.setting.config;
    out.num_data_ranks = inputs_.job.world_size / ranks_of_model(config);
    const PlannedRank rank{.device = report.device, .num_data_ranks = out.num_data_ranks};
    int64_t most = -1;
    const auto& stages = stages_of(config);
    for (size_t stage = 0; stage < stages.size(); ++stage) {
      const PlannedModel& model = stages[stage];
      const auto memory = plan_rank(model, config, rank);
      const auto points = activations(config, stage);
      const auto peak = memory_plan::peak_of(memory, report.capacity, points, config.batch.accumulation > 1);
      if (const int64_t need = peak.gpu_bytes + peak.host_bytes; need > most) {
        most = need;
        out.setting.memory = memory;
        out.activations = most_activations(points);
        out.peak = peak;
      }
      StepWork work = work_of(model, config, out.num_data_ranks);
      work.share_kept = share_kept_gathered(model, config, rank);
      const StepTimes times = predict_step(config, work, inputs_.rates);
      if (times.step > out.times.step) out.times = times;
    }
    out.fit = fit_of(out.peak, report.capacity);
    return out;
  }

  const std::vector<PlannedModel>& stages_of(const config::JobConfig& config) const {
    return inputs_.stages.at(static_cast<int>(config.tensor_parallel.size)).of(config);
  }

  // Of the micro batches that the stage keeps at a time.
  int64_t estimate(config::JobConfig config, size_t stage) const {
    const auto& stages = stages_of(config);
    const auto schedule = pipeline::plan_schedule(config.pipeline.schedule, static_cast<int>(stages.size()),
                                                  static_cast<int>(stage), static_cast<int>(config.batch.accumulation));
    config.pipeline.stages = 1;  // the table is that of the stage
    return pipeline::peak_memory(schedule).live_activations *
           estimate_activations(stages[stage].table, config, config.batch.micro_batch * inputs_.positions_per_sample,
                                dtype(config));
  }

  int64_t largest_estimate(const config::JobConfig& config) const {
    int64_t largest = 0;
    for (size_t stage = 0; stage < stages_of(config).size(); ++stage)
      largest = std::max(largest, estimate(config, stage));
    return largest;
  }

  std::vector<memory_plan::StepPoint> activations(const config::JobConfig& config, size_t stage) const {
    const int64_t estimated = estimate(config, stage);
    if (!inputs_.report.activations) return memory_plan::points_of(estimated);
    const double scale =
        own_estimate_ > 0 ? static_cast<double>(estimated) / static_cast<double>(own_estimate_)
                          : static_cast<double>(config.batch.micro_batch) / static_cast<double>(own_.batch.micro_batch);
    const auto known = activation_points(inputs_.report.activations, config);
    std::vector<memory_plan::StepPoint> out(known.begin(), known.end());
    for (auto& point : out) {
      point.activation_bytes = static_cast<int64_t>(scale * static_cast<double>(point.activation_bytes));
    }
    return out;
  }

  at::ScalarType dtype(const config::JobConfig& config) const {
    return precision::choose_precision(config.precision, config.keep_batch_norm, inputs_.report.device).compute_dtype;
  }

  // Within a host where the groups lie in hosts.
  double tensor_bytes(const config::JobConfig& config) const {
    const PlanReport& report = inputs_.report;
    const bool is_within = report.num_nodes > 1 && report.ranks_of_node % config.tensor_parallel.size == 0;
    return is_within ? rate_within_host(inputs_.rates, report.device, report.ranks_of_node)
                     : inputs_.rates.network_bytes;
  }

  StepWork work_of(const PlannedModel& model, const config::JobConfig& config, int num_data_ranks) const {
    return {.num_parameters = model.num_local(),
            .num_trained = model.num_local_trained(),
            .positions_per_sample = inputs_.positions_per_sample,
            .compute_size = static_cast<int64_t>(c10::elementSize(dtype(config))),
            .num_data_ranks = num_data_ranks,
            .ranks_of_host = inputs_.report.ranks_of_node,
            .attention_width = count_attention_width(model.table),
            .tensor_ranks = static_cast<int>(config.tensor_parallel.size),
            .reduced_width = model.reduced_width,
            .tensor_bytes = tensor_bytes(config)};
  }

  const SuggestInputs& inputs_;
  const config::JobConfig own_;
  const int64_t own_estimate_;
};

std::string describe(const Candidate& candidate) {
  const auto& config = candidate.setting.config;
  const auto tensor_ranks = config.tensor_parallel.size;
  std::string text = tensor_ranks > 1 ? fmt::format("{} tensor ranks, ", tensor_ranks) : "";
  text += fmt::format("ZeRO {}", candidate.setting.stage);
  const auto add = [&](const char* what, OffloadDevice device) {
    if (device != OffloadDevice::kNone) text += fmt::format(", {} on {}", what, text_of(device));
  };
  add("optimizer", candidate.setting.optimizer);
  add("parameters", candidate.setting.parameters);
  return text + fmt::format(", {}recomputation, micro batch {} x {} accumulation step{}",
                            config.recomputation.enabled ? "" : "no ", config.batch.micro_batch,
                            config.batch.accumulation, config.batch.accumulation == 1 ? "" : "s");
}

std::string times_text(const StepTimes& times) {
  const auto milliseconds = [](double seconds) { return fmt::format("{:.4g}", seconds * 1000); };
  return fmt::format("{} ms (compute {}, communication {}, update {}, transfers {})", milliseconds(times.step),
                     milliseconds(times.compute), milliseconds(times.communication), milliseconds(times.update),
                     milliseconds(times.transfers));
}

std::string peak_text(const Candidate& candidate, const memory_plan::Capacity& capacity) {
  if (!capacity.has_gpus) return fmt::format("{} of host memory", format_bytes(candidate.peak.host_bytes));
  return fmt::format("{} of each GPU, {} of host memory", format_bytes(candidate.peak.gpu_bytes),
                     format_bytes(candidate.peak.host_bytes));
}

Json candidate_json(const Candidate& candidate, const memory_plan::Capacity& capacity) {
  const auto& config = candidate.setting.config;
  return {{"tensor_ranks", config.tensor_parallel.size},
          {"num_data_ranks", candidate.num_data_ranks},
          {"zero_stage", candidate.setting.stage},
          {"offload_optimizer", text_of(candidate.setting.optimizer)},
          {"offload_param", text_of(candidate.setting.parameters)},
          {"recomputation", config.recomputation.enabled},
          {"micro_batch", config.batch.micro_batch},
          {"accumulation", config.batch.accumulation},
          {"activation_bytes", candidate.activations},
          {"peak_bytes_per_gpu", capacity.has_gpus ? Json(candidate.peak.gpu_bytes) : Json(nullptr)},
          {"peak_bytes_per_host", candidate.peak.host_bytes},
          {"fits", candidate.fit == Fit::kYes},
          {"reason", describe_excess(candidate.peak, capacity)},
          {"seconds",
           {{"step", candidate.times.step},
            {"compute", candidate.times.compute},
            {"communication", candidate.times.communication},
            {"update", candidate.times.update},
            {"transfers", candidate.times.transfers}}}};
}

int64_t excess(const Candidate& candidate, const memory_plan::Capacity& capacity) {
  const int64_t gpu = capacity.gpu_bytes ? candidate.peak.gpu_bytes - *capacity.gpu_bytes : 0;
  const int64_t host = capacity.host_bytes ? candidate.peak.host_bytes - *capacity.host_bytes : 0;
  return std::max<int64_t>(gpu, 0) + std::max<int64_t>(host, 0);
}

[[noreturn]] void refuse(const std::vector<Candidate>& candidates, const memory_plan::Capacity& capacity) {
  const auto nearest = std::min_element(candidates.begin(), candidates.end(), [&](const auto& a, const auto& b) {
    return excess(a, capacity) < excess(b, capacity);
  });
  throw UserError(ExitCode::kUnavailable,
                  fmt::format("no setting fits: the nearest ({}) {}. Use more hosts or GPUs, or a smaller "
                              "train_batch_size",
                              describe(*nearest), describe_excess(nearest->peak, capacity)));
}

}  // namespace

Suggestion suggest(const SuggestInputs& inputs) {
  auto candidates = Search(inputs).run();
  std::stable_sort(candidates.begin(), candidates.end(),
                   [](const auto& a, const auto& b) { return a.times.step < b.times.step; });
  const auto chosen =
      std::find_if(candidates.begin(), candidates.end(), [](const auto& each) { return each.fit == Fit::kYes; });
  if (chosen == candidates.end()) refuse(candidates, inputs.report.capacity);
  Suggestion out;
  out.num_candidates = candidates.size();
  out.chosen = *chosen;
  if (chosen != candidates.begin()) out.next_better = *(chosen - 1);
  const auto own =
      std::find_if(candidates.begin(), candidates.end(), [](const auto& each) { return each.setting.is_own; });
  if (own != candidates.end()) out.own = *own;
  return out;
}

std::string config_text(const Candidate& candidate, const JobSource& job) {
  JobSource chosen = job;
  chosen.overrides.insert(chosen.overrides.end(), candidate.setting.overrides.begin(),
                          candidate.setting.overrides.end());
  return config::resolved_json(load_job(chosen)) + "\n";
}

std::string suggestion_text(const Suggestion& suggestion, const SuggestInputs& inputs, const std::string& written_to) {
  const auto& capacity = inputs.report.capacity;
  const Candidate& chosen = suggestion.chosen;
  const auto num_stages = chosen.setting.config.pipeline.stages;
  std::string text = fmt::format(
      "suggested, of {} settings with {} samples a step on {} data rank{}{}: {}\n", suggestion.num_candidates,
      chosen.setting.config.batch.train_batch, chosen.num_data_ranks, chosen.num_data_ranks == 1 ? "" : "s",
      num_stages > 1 ? fmt::format(" x {} pipeline stages", num_stages) : "", describe(chosen));
  text += fmt::format("  predicted step {}\n  peak {}, of it {} activations\n", times_text(chosen.times),
                      peak_text(chosen, capacity), format_bytes(chosen.activations));
  if (suggestion.own && !chosen.setting.is_own) {
    text += fmt::format("the config's own: {}\n  predicted step {}\n", describe(*suggestion.own),
                        times_text(suggestion.own->times));
    const auto reason = describe_excess(suggestion.own->peak, capacity);
    if (!reason.empty()) text += fmt::format("  it does not fit: {}\n", reason);
  }
  if (suggestion.next_better) {
    text += fmt::format("the next better one does not fit: {}\n  predicted step {}\n  {}\n",
                        describe(*suggestion.next_better), times_text(suggestion.next_better->times),
                        describe_excess(suggestion.next_better->peak, capacity));
  } else {
    text += "no other setting is predicted to be faster\n";
  }
  return text + fmt::format("written to {}\n", written_to);
}

std::string suggestion_json(const Suggestion& suggestion, const SuggestInputs& inputs, const std::string& written_to) {
  const auto& capacity = inputs.report.capacity;
  const auto optional = [&](const std::optional<Candidate>& candidate) {
    return candidate ? candidate_json(*candidate, capacity) : Json(nullptr);
  };
  const Rates& rates = inputs.rates;
  const Json document{{"config", written_to},
                      {"num_settings", suggestion.num_candidates},
                      {"suggested", candidate_json(suggestion.chosen, capacity)},
                      {"own", optional(suggestion.own)},
                      {"next_better", optional(suggestion.next_better)},
                      {"rates",
                       {{"flops", rates.flops},
                        {"device_bytes", rates.device_bytes},
                        {"link_bytes", rates.link_bytes},
                        {"host_bytes", rates.host_bytes},
                        {"network_bytes", rates.network_bytes},
                        {"file_bytes", rates.file_bytes}}}};
  return dump_json(document, 2) + "\n";
}

}  // namespace dslaunch::runtime::engine::plan
