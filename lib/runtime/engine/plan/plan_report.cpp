#include "runtime/engine/plan/plan_report.hpp"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/byte_size.hpp"
#include "base/dump_json.hpp"
#include "base/format.hpp"
#include "base/quantity.hpp"
#include "config/enum_names.hpp"
#include "runtime/precision/precision_choice.hpp"

namespace dslaunch::runtime::engine::plan {
namespace {

using memory_plan::Capacity;
using memory_plan::Fit;
using memory_plan::Peak;
using memory_plan::RankMemory;
using memory_plan::Tier;
using memory_plan::Use;
using Json = nlohmann::ordered_json;

std::string counted(int64_t count, const std::string& noun) {
  return fmt::format("{} {}{}", count, noun, count == 1 ? "" : "s");
}

const PlannedSetting& own_setting(const PlanReport& report) {
  return *std::find_if(report.settings.begin(), report.settings.end(), [](const auto& each) { return each.is_own; });
}

std::string dtype_text(const PlanReport& report) {
  const auto precision = own_setting(report).config.precision;
  const bool is_auto = precision == config::Precision::kAuto;
  const auto chosen = precision::choose_precision(precision, true, report.device).compute_dtype;
  const char* name = chosen == at::kFloat ? "fp32" : chosen == at::kHalf ? "fp16" : "bf16";
  return is_auto ? fmt::format("{} (auto)", name) : name;
}

// Masters and moments.
int64_t optimizer_bytes(const RankMemory& memory, Tier tier) {
  return memory.of(tier, Use::kMasters) + memory.of(tier, Use::kMoments);
}

// Those of all times of a step.
int64_t bucket_bytes(const RankMemory& memory, Tier tier) {
  return memory.of(tier, Use::kBuckets) + memory.of(tier, Use::kBackwardBuckets) + memory.of(tier, Use::kUpdateCopies);
}

std::string fit_text(const PlannedSetting& setting, const PlanReport& report, const ByteUnit& unit) {
  const Peak peak = peak_of(setting, report);
  switch (fit_of(peak, report.capacity)) {
    case Fit::kYes:
      return "yes";
    case Fit::kUnknown:
      return "?";
    case Fit::kNo:
      break;
  }
  const Capacity& capacity = report.capacity;
  const int64_t gpu = capacity.gpu_bytes ? peak.gpu_bytes - *capacity.gpu_bytes : 0;
  if (gpu > 0) return fmt::format("no: GPU {:.2f} over", unit.count(gpu));
  return fmt::format("no: host {:.2f} over", unit.count(peak.host_bytes - capacity.host_bytes.value_or(0)));
}

std::string known(const char* what, const std::optional<int64_t>& bytes, const char* option) {
  return bytes ? fmt::format("{} {}", what, format_bytes(*bytes)) : fmt::format("{} not known ({})", what, option);
}

std::string probe_text(const std::optional<model::ProbeReport>& probe) {
  if (!probe) return "probe: left out (tensor_parallel.probe is false)\n";
  std::string text = probe->summary() + "\n";
  for (const auto& line : probe->not_compared) text += line + "\n";
  return text;
}

std::string head_text(const PlanReport& report) {
  const auto& own = own_setting(report).config;
  const char* rank = report.device.is_cpu() ? "CPU rank" : "GPU";
  std::string text = fmt::format("{}: {} parameters", report.model, with_separators(report.num_parameters));
  if (report.num_trained < report.num_parameters) {
    text += fmt::format(", {} of them trained", with_separators(report.num_trained));
  }
  text += fmt::format(", in {}\n", counted(static_cast<int64_t>(report.num_units), "unit"));
  text += fmt::format("{} with {}", counted(report.num_nodes, "host"), counted(report.ranks_of_node, rank));
  if (own.tensor_parallel.size > 1) text += fmt::format(", {} tensor ranks", own.tensor_parallel.size);
  if (own.pipeline.stages > 1) text += fmt::format(", {} pipeline stages (the largest is shown)", own.pipeline.stages);
  text += fmt::format(": {}; {}, {}, micro batch {}, {}\n", counted(report.num_data_ranks, "data rank"),
                      dtype_text(report), config::name_of(config::kOptimizerTypes, own.optimizer.type),
                      own.batch.micro_batch, counted(own.batch.accumulation, "accumulation step"));
  if (!report.fp8.empty()) text += report.fp8 + "\n";
  if (report.placements) {
    text += fmt::format("{}; a rank has {} parameters\n", report.placements->summary(),
                        with_separators(report.num_parameters_of_rank));
    for (const auto& line : report.placements->whole_lines()) text += line + "\n";
    text += probe_text(report.placements->probe);
  }
  if (report.capacity.has_gpus) text += known("GPU memory", report.capacity.gpu_bytes, "--gpu_memory SIZE") + ", ";
  text += host_memory_text(report) + "; ";
  if (report.activations) {
    const Activations& activations = *report.activations;
    text += fmt::format("activations {} ({})", format_bytes(most_activations(activations.points)), activations.origin);
    if (!activations.with_whole_logits.empty()) {
      text += fmt::format(", {} where logits exist whole (stage 3)",
                          format_bytes(most_activations(activations.with_whole_logits)));
    }
    text += '\n';
  } else {
    text += "activations come on top: not measured (--measure, or --activations SIZE)\n";
  }
  return text;
}

// In which the largest number of the table has digits before its point.
ByteUnit unit_of_table(const PlanReport& report) {
  int64_t largest = 0;
  for (const auto& setting : report.settings) {
    const Peak peak = peak_of(setting, report);
    largest = std::max({largest, setting.memory.total(Tier::kDevice), setting.memory.total(Tier::kFile), peak.gpu_bytes,
                        peak.host_bytes});
  }
  return unit_for(largest / 8);
}

std::string row_text(const PlannedSetting& setting, const PlanReport& report, const ByteUnit& unit) {
  const RankMemory& memory = setting.memory;
  const auto on_device = [&](Use use) { return unit.count(memory.of(Tier::kDevice, use)); };
  const Peak peak = peak_of(setting, report);
  std::string text = fmt::format("{} {:>4}  {:<9}  {:<10}", setting.is_own ? '*' : ' ', setting.stage,
                                 text_of(setting.optimizer), text_of(setting.parameters));
  text += fmt::format("  {:>10.2f}  {:>9.2f}  {:>9.2f}  {:>7.2f}  {:>7.2f}", on_device(Use::kParameters),
                      on_device(Use::kGradients), unit.count(optimizer_bytes(memory, Tier::kDevice)),
                      on_device(Use::kSlots), unit.count(bucket_bytes(memory, Tier::kDevice)));
  if (report.capacity.has_gpus) text += fmt::format("  {:>8.2f}", unit.count(peak.gpu_bytes));
  text += fmt::format("  {:>8.2f}  {:>8.2f}  {:>8.2f}  {:>8.2f}", unit.count(memory.total(Tier::kPageLocked)),
                      unit.count(memory.total(Tier::kHost)), unit.count(memory.total(Tier::kFile)),
                      unit.count(peak.host_bytes));
  return text + "  " + fit_text(setting, report, unit) + "\n";
}

Json tier_json(const RankMemory& memory, Tier tier) {
  return {{"parameters", memory.of(tier, Use::kParameters)},
          {"gradients", memory.of(tier, Use::kGradients)},
          {"masters", memory.of(tier, Use::kMasters)},
          {"moments", memory.of(tier, Use::kMoments)},
          {"slots", memory.of(tier, Use::kSlots)},
          {"buckets", bucket_bytes(memory, tier)},
          {"total", memory.total(tier)}};
}

Json fit_json(Fit fit) {
  return fit == Fit::kUnknown ? Json(nullptr) : Json(fit == Fit::kYes);
}

Json optional_json(const std::optional<int64_t>& value) {
  return value ? Json(*value) : Json(nullptr);
}

Json probe_json(const std::optional<model::ProbeReport>& probe) {
  if (!probe) return nullptr;
  return {{"num_compared", probe->num_compared}, {"not_compared", probe->not_compared}};
}

Json placements_json(const PlanReport& report) {
  if (!report.placements) return nullptr;
  Json gemms = Json::array();
  for (const auto& gemm : report.placements->gemms) {
    gemms.push_back({{"parameter", gemm.parameter},
                     {"split", gemm.split.empty() ? Json(nullptr) : Json(gemm.split)},
                     {"elements", gemm.elements},
                     {"reason", gemm.reason.empty() ? Json(nullptr) : Json(gemm.reason)}});
  }
  return {{"gemm_elements", report.placements->gemm_elements()},
          {"split_elements", report.placements->split_elements()},
          {"gemms", std::move(gemms)},
          {"notes", report.placements->notes},
          {"probe", probe_json(report.placements->probe)}};
}

Json setting_json(const PlannedSetting& setting, const PlanReport& report) {
  const Peak peak = peak_of(setting, report);
  const RankMemory& memory = setting.memory;
  return {{"zero_stage", setting.stage},
          {"offload_optimizer", text_of(setting.optimizer)},
          {"offload_param", text_of(setting.parameters)},
          {"is_of_config", setting.is_own},
          {"bytes_per_rank",
           {{"device", tier_json(memory, Tier::kDevice)},
            {"page_locked", tier_json(memory, Tier::kPageLocked)},
            {"host", tier_json(memory, Tier::kHost)},
            {"file", tier_json(memory, Tier::kFile)}}},
          {"peak_bytes_per_gpu", report.capacity.has_gpus ? Json(peak.gpu_bytes) : Json(nullptr)},
          {"peak_bytes_per_host", peak.host_bytes},
          {"fits", fit_json(fit_of(peak, report.capacity))},
          {"reason", describe_excess(peak, report.capacity)}};
}

}  // namespace

std::string text_of(config::OffloadDevice device) {
  return std::string(config::name_of(config::kOffloadDevices, device));
}

std::span<const memory_plan::StepPoint> activation_points(const std::optional<Activations>& activations,
                                                          const config::JobConfig& config) {
  if (!activations) return {};
  const bool is_chunked = config.kernels.chunked_cross_entropy || activations->with_whole_logits.empty();
  return is_chunked ? activations->points : activations->with_whole_logits;
}

Peak peak_of(const PlannedSetting& setting, const PlanReport& report) {
  return memory_plan::peak_of(setting.memory, report.capacity, activation_points(report.activations, setting.config),
                              setting.config.batch.accumulation > 1);
}

std::string describe_excess(const Peak& peak, const Capacity& capacity) {
  if (capacity.gpu_bytes && peak.gpu_bytes > *capacity.gpu_bytes) {
    return fmt::format("needs {} on each GPU, which has {}", format_bytes(peak.gpu_bytes),
                       format_bytes(*capacity.gpu_bytes));
  }
  if (capacity.host_bytes && peak.host_bytes > *capacity.host_bytes) {
    return fmt::format("needs {} of host memory ({} for each of {}), of which {} are available",
                       format_bytes(peak.host_bytes), format_bytes(peak.host_bytes / capacity.ranks_of_host),
                       counted(capacity.ranks_of_host, "rank"), format_bytes(*capacity.host_bytes));
  }
  return {};
}

std::string host_memory_text(const PlanReport& report) {
  const std::string text = known("host memory", report.capacity.host_bytes, "--host_memory SIZE");
  return report.is_host_memory_of_this_machine && report.num_nodes > 1
             ? text + " (what this machine has available; for other hosts --host_memory SIZE)"
             : text;
}

std::string report_text(const PlanReport& report) {
  const bool has_gpus = report.capacity.has_gpus;
  std::string text = head_text(report);
  const ByteUnit unit = unit_of_table(report);
  text += fmt::format("\n{} of each rank; optimizer: masters and moments; *: the config's own setting\n", unit.name);
  text += fmt::format("{:8}{:<23}{:<{}}host\n", "", "offloaded", has_gpus ? "GPU" : "memory of the rank",
                      has_gpus ? 60 : 50);
  text += fmt::format(
      "  ZeRO  optimizer  parameters  parameters  gradients  optimizer    slots  buckets{}    pinned  "
      "ordinary     files  per host  fits\n",
      has_gpus ? "      peak" : "");
  for (const auto& setting : report.settings) text += row_text(setting, report, unit);
  return text;
}

std::string report_json(const PlanReport& report) {
  const auto& own = own_setting(report).config;
  Json document{{"model", report.model},
                {"num_parameters", report.num_parameters},
                {"num_trained_parameters", report.num_trained},
                {"num_units", report.num_units},
                {"num_hosts", report.num_nodes},
                {"ranks_per_host", report.ranks_of_node},
                {"num_data_ranks", report.num_data_ranks},
                {"pipeline_stages", own.pipeline.stages},
                {"tensor_ranks", own.tensor_parallel.size},
                {"num_parameters_per_rank", report.num_parameters_of_rank},
                {"device", report.device.is_cpu() ? "cpu" : "cuda"},
                {"micro_batch", own.batch.micro_batch},
                {"accumulation", own.batch.accumulation},
                {"gpu_memory", optional_json(report.capacity.gpu_bytes)},
                {"host_memory", optional_json(report.capacity.host_bytes)},
                {"activations", nullptr},
                {"fp8", report.fp8.empty() ? Json(nullptr) : Json(report.fp8)},
                {"placements", placements_json(report)},
                {"settings", Json::array()}};
  if (report.activations) {
    const Activations& activations = *report.activations;
    const auto& whole = activations.with_whole_logits.empty() ? activations.points : activations.with_whole_logits;
    document["activations"] = {{"bytes", most_activations(activations.points)},
                               {"origin", activations.origin},
                               {"bytes_with_whole_logits", most_activations(whole)}};
  }
  for (const auto& setting : report.settings) document["settings"].push_back(setting_json(setting, report));
  return dump_json(document, 2) + "\n";
}

}  // namespace dslaunch::runtime::engine::plan
