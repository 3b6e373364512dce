#include "runtime/engine/plan/largest_gpt.hpp"

#include <algorithm>
#include <iterator>
#include <nlohmann/json.hpp>

#include "base/byte_size.hpp"
#include "base/dump_json.hpp"
#include "base/format.hpp"
#include "base/quantity.hpp"
#include "runtime/engine/plan/estimate_activations.hpp"
#include "runtime/model/stages/partition.hpp"
#include "runtime/pipeline/schedule.hpp"
#include "runtime/pipeline/timeline.hpp"
#include "runtime/precision/precision_choice.hpp"

namespace dslaunch::runtime::engine::plan {
namespace {

using memory_plan::Fit;
using memory_plan::Peak;
using memory_plan::RankMemory;
using memory_plan::Tier;
using Json = nlohmann::ordered_json;

constexpr int64_t kWidthStep = 128, kMaxWidth = 1024 * kWidthStep;

// Of the presets of tools/export, and from 6,144 on those of Megatron-LM.
constexpr std::pair<int64_t, int64_t> kPublished[] = {{256, 8},    {768, 12},    {2048, 24},  {4096, 32},
                                                      {6144, 40},  {8192, 48},   {10240, 60}, {12288, 80},
                                                      {16384, 96}, {20480, 105}, {25600, 128}};

class GptTable {
 public:
  explicit GptTable(const GptShape& shape) {
    table_.units.push_back({"", {}});
    open_unit("wte");
    add("weight", {shape.vocabulary, shape.hidden});
    open_unit("wpe");
    add("weight", {shape.positions, shape.hidden});
    for (int64_t block = 0; block < shape.blocks; ++block) add_block(block, shape.hidden);
    current_ = 0;
    add_layer("lnf", {shape.hidden}, shape.hidden);
    open_unit("head");
    add("weight", {shape.vocabulary, shape.hidden});
  }
  ParameterTable take() { return std::move(table_); }

 private:
  void open_unit(const std::string& name) {
    current_ = static_cast<int>(table_.units.size());
    table_.units.push_back({name, {}});
  }
  void add(const std::string& name, std::vector<int64_t> shape) {
    int64_t numel = 1;
    for (const int64_t size : shape) numel *= size;
    auto& unit = table_.units[static_cast<size_t>(current_)];
    unit.parameters.push_back(static_cast<int>(table_.parameters.size()));
    const std::string path = unit.name.empty() ? name : unit.name + "." + name;
    table_.parameters.push_back({path, std::move(shape), numel, at::kFloat, true, current_, {}});
  }
  void add_layer(const std::string& name, std::vector<int64_t> weight, int64_t bias) {
    add(name + ".weight", std::move(weight));
    add(name + ".bias", {bias});
  }
  void add_block(int64_t index, int64_t hidden) {
    open_unit(fmt::format("blocks.{}", index));
    add_layer("ln1", {hidden}, hidden);
    add_layer("attn.qkv", {3 * hidden, hidden}, 3 * hidden);
    add_layer("attn.proj", {hidden, hidden}, hidden);
    add_layer("ln2", {hidden}, hidden);
    add_layer("fc", {4 * hidden, hidden}, 4 * hidden);
    add_layer("out", {hidden, 4 * hidden}, hidden);
  }

  ParameterTable table_;
  int current_ = 0;  // unit
};

// Of the whole model's table, to that of a stage, whose first unit is the root.
void add_unit(const ParameterTable& from, int unit, ParameterTable& to) {
  const UnitInfo& info = from.units[static_cast<size_t>(unit)];
  if (unit > 0) to.units.push_back({info.name, {}});
  const int number = unit > 0 ? static_cast<int>(to.units.size()) - 1 : 0;
  for (const int index : info.parameters) {
    to.units[static_cast<size_t>(number)].parameters.push_back(static_cast<int>(to.parameters.size()));
    to.parameters.push_back(from.parameters[static_cast<size_t>(index)]);
    to.parameters.back().unit = number;
  }
}

// The plan of one width for one setting.
class Attempt {
 public:
  Attempt(const PlanReport& report, const PlannedSetting& setting) : report_(report), setting_(setting) {}

  // Empty: a model of this width has fewer layers than the pipeline has stages.
  std::optional<LargestGpt> plan(int64_t hidden) const {
    LargestGpt out{setting_, gpt_of_width(hidden), 0, {}, {}};
    const auto stages = gpt_stages(*out.shape, static_cast<int>(setting_.config.pipeline.stages));
    if (stages.empty()) return std::nullopt;
    for (size_t stage = 0; stage < stages.size(); ++stage) {
      out.num_parameters += stages[stage].table.num_elements();
      const auto memory = plan_rank(stages[stage], setting_.config,
                                    {.device = report_.device, .num_data_ranks = report_.num_data_ranks});
      const int64_t kept = activations(stages[stage].table, static_cast<int>(stage), out.shape->positions);
      const auto need = [](const RankMemory& of, int64_t kept_bytes) { return of.total(Tier::kDevice) + kept_bytes; };
      if (out.activations && need(memory, kept) <= need(out.setting.memory, *out.activations)) continue;
      out.setting.memory = memory;
      out.activations = kept;
    }
    return out;
  }
  Peak peak(const LargestGpt& of) const {
    return memory_plan::peak_of(of.setting.memory, report_.capacity, memory_plan::points_of(of.activations.value_or(0)),
                                setting_.config.batch.accumulation > 1);
  }
  bool fits(const LargestGpt& of) const { return fit_of(peak(of), report_.capacity) != Fit::kNo; }
  std::string limit(const LargestGpt& of) const {
    const auto& gpu = report_.capacity.gpu_bytes;
    return gpu && peak(of).gpu_bytes > *gpu ? "GPU" : "host";
  }

 private:
  // Of all micro batches that the stage keeps at a time.
  int64_t activations(const ParameterTable& table, int stage, int64_t positions) const {
    if (report_.activations) return most_activations(report_.activations->points);
    config::JobConfig config = setting_.config;
    const auto dtype =
        precision::choose_precision(config.precision, config.keep_batch_norm, report_.device).compute_dtype;
    const auto plan = pipeline::plan_schedule(config.pipeline.schedule, static_cast<int>(config.pipeline.stages), stage,
                                              static_cast<int>(config.batch.accumulation));
    config.pipeline.stages = 1;  // the table is that of the stage
    return pipeline::peak_memory(plan).live_activations *
           estimate_activations(table, config, config.batch.micro_batch * positions, dtype);
  }

  const PlanReport& report_;
  const PlannedSetting& setting_;
};

LargestGpt find_largest(const PlanReport& report, const PlannedSetting& setting) {
  const Attempt attempt(report, setting);
  // In steps of the width. Below the first one models have fewer layers than stages.
  int64_t first = 1;
  while (first <= kMaxWidth / kWidthStep && !attempt.plan(first * kWidthStep)) ++first;
  int64_t fits = first - 1, exceeds = kMaxWidth / kWidthStep + 1;
  while (exceeds - fits > 1) {
    const int64_t middle = fits + (exceeds - fits) / 2;
    (attempt.fits(*attempt.plan(middle * kWidthStep)) ? fits : exceeds) = middle;
  }
  LargestGpt found{setting, {}, 0, {}, {}};
  if (fits >= first) found = *attempt.plan(fits * kWidthStep);
  if (exceeds * kWidthStep <= kMaxWidth) found.limit = attempt.limit(*attempt.plan(exceeds * kWidthStep));
  if (first > kMaxWidth / kWidthStep) found.limit = "stages";
  return found;
}

double in_gib(int64_t bytes) {
  return static_cast<double>(bytes) / (int64_t{1} << 30);
}

Peak peak_of_largest(const PlanReport& report, const LargestGpt& of) {
  return memory_plan::peak_of(of.setting.memory, report.capacity, memory_plan::points_of(of.activations.value_or(0)),
                              of.setting.config.batch.accumulation > 1);
}

// "1.42B", as models are named.
std::string model_size(int64_t num_parameters) {
  std::string text = quantity(num_parameters, "");
  const bool is_giga = text.ends_with(" G");
  std::erase(text, ' ');
  return is_giga ? text.substr(0, text.size() - 1) + "B" : text;
}

std::string row_text(const PlanReport& report, const LargestGpt& row) {
  std::string text = fmt::format("{} {:>4}  {:<9}  {:<10}", row.setting.is_own ? '*' : ' ', row.setting.stage,
                                 text_of(row.setting.optimizer), text_of(row.setting.parameters));
  if (!row.shape && row.limit == "stages") return text + "  none: no model has as many layers\n";
  if (!row.shape && row.setting.config.pipeline.stages > 1) {
    return text + fmt::format("  none: not even the smallest with a layer for each stage fits ({})\n", row.limit);
  }
  if (!row.shape) return text + fmt::format("  none: not even a width of {} fits ({})\n", kWidthStep, row.limit);
  const Peak peak = peak_of_largest(report, row);
  text += fmt::format("  {:>10}  {:>7}  {:>6}", model_size(row.num_parameters), with_separators(row.shape->hidden),
                      row.shape->blocks);
  if (report.capacity.has_gpus) text += fmt::format("  {:>8.2f}", in_gib(peak.gpu_bytes));
  text += fmt::format("  {:>11.2f}  {:>8.2f}  {:>9.2f}", in_gib(row.activations.value_or(0)), in_gib(peak.host_bytes),
                      in_gib(row.setting.memory.total(Tier::kFile)));
  return text + fmt::format("  {}\n", row.limit.empty() ? "-" : row.limit);
}

Json row_json(const PlanReport& report, const LargestGpt& row) {
  const Peak peak = peak_of_largest(report, row);
  Json out{{"zero_stage", row.setting.stage},
           {"offload_optimizer", text_of(row.setting.optimizer)},
           {"offload_param", text_of(row.setting.parameters)},
           {"is_of_config", row.setting.is_own},
           {"num_parameters", row.num_parameters},
           {"hidden", nullptr},
           {"blocks", nullptr},
           {"limit", row.limit.empty() ? Json(nullptr) : Json(row.limit)}};
  if (!row.shape) return out;
  out["hidden"] = row.shape->hidden;
  out["blocks"] = row.shape->blocks;
  out["activation_bytes"] = row.activations.value_or(0);
  out["peak_bytes_per_gpu"] = report.capacity.has_gpus ? Json(peak.gpu_bytes) : Json(nullptr);
  out["peak_bytes_per_host"] = peak.host_bytes;
  out["file_bytes_per_rank"] = row.setting.memory.total(Tier::kFile);
  return out;
}

}  // namespace

GptShape gpt_of_width(int64_t hidden) {
  const auto* above = std::find_if(std::begin(kPublished), std::end(kPublished),
                                   [&](const auto& each) { return each.first >= hidden; });
  if (above == std::end(kPublished)) return {hidden, hidden / 200};
  if (above == std::begin(kPublished)) return {hidden, above->second};
  const auto& [width_before, blocks_before] = *(above - 1);
  const auto& [width_after, blocks_after] = *above;
  const int64_t share = (hidden - width_before) * (blocks_after - blocks_before) / (width_after - width_before);
  return {hidden, blocks_before + share};
}

PlannedModel gpt_model(const GptShape& shape) {
  return {GptTable(shape).take(), {}};
}

std::vector<PlannedModel> gpt_stages(const GptShape& shape, int num_stages) {
  const PlannedModel whole = gpt_model(shape);
  const ParameterTable& table = whole.table;
  const auto numel_of = [&](int unit) {
    int64_t sum = 0;
    for (const int index : table.units[static_cast<size_t>(unit)].parameters)
      sum += table.parameters[static_cast<size_t>(index)].numel;
    return sum;
  };
  // Layers: the two embeddings, each block, the output layer with the norm before it, which is the root's.
  const int num_units = static_cast<int>(table.units.size());
  std::vector<std::vector<int>> layers{{1, 2}};
  for (int unit = 3; unit < num_units - 1; ++unit) layers.push_back({unit});
  layers.push_back({0, num_units - 1});
  model::stages::PartitionProblem problem;
  for (const auto& units : layers) {
    int64_t numel = 0;
    for (const int unit : units) numel += numel_of(unit);
    problem.costs.push_back(static_cast<double>(numel));
    problem.can_cut.push_back(true);
    problem.cut_bytes.push_back(1);  // all alike
    problem.num_trainable.push_back(numel);
  }
  const auto cuts = model::stages::partition_layers(problem, static_cast<size_t>(num_stages));
  if (!cuts) return {};
  std::vector<PlannedModel> out;
  for (size_t layer = 0; layer < layers.size(); ++layer) {
    if (layer == 0 || std::find(cuts->begin(), cuts->end(), layer) != cuts->end()) {
      out.emplace_back();
      out.back().table.units.push_back({"", {}});
    }
    for (const int unit : layers[layer]) add_unit(table, unit, out.back().table);
  }
  return out;
}

std::vector<LargestGpt> find_largest_gpts(const PlanReport& report, const JobSource& job) {
  std::vector<LargestGpt> out;
  for (const auto& setting : list_settings(job)) out.push_back(find_largest(report, setting));
  return out;
}

std::string largest_text(const PlanReport& report, const std::vector<LargestGpt>& found) {
  const auto& batch = found.front().setting.config.batch;
  const GptShape any;
  std::string text = fmt::format(
      "The largest GPT of each setting: blocks as published models of its width have, a "
      "vocabulary of {}, {} positions\n",
      with_separators(any.vocabulary), with_separators(any.positions));
  text += fmt::format(
      "{} host{} with {} {}; {}{}\n", report.num_nodes, report.num_nodes == 1 ? "" : "s", report.ranks_of_node,
      fmt::format("{}{}", report.device.is_cpu() ? "CPU rank" : "GPU", report.ranks_of_node == 1 ? "" : "s"),
      report.capacity.gpu_bytes ? fmt::format("GPU memory {}, ", format_bytes(*report.capacity.gpu_bytes)) : "",
      host_memory_text(report));
  const int64_t stages = found.front().setting.config.pipeline.stages;
  if (stages > 1) {
    text += fmt::format(
        "data ranks {}, pipeline stages {} (cut by parameters; the one that needs the most memory is shown), ",
        report.num_data_ranks, stages);
    text += fmt::format("micro batches of a step {}\n", batch.accumulation);
  }
  if (report.activations) {
    text += fmt::format("GiB; activations of a rank given: {}\n\n",
                        format_bytes(most_activations(report.activations->points)));
  } else {
    text += fmt::format("GiB; activations of {} of {} estimated from the shapes\n\n",
                        stages > 1 ? "the micro batches that a stage keeps," : "a micro batch", batch.micro_batch);
  }
  text += fmt::format(
      "  ZeRO  optimizer  parameters   of model   hidden  blocks{}  activations  per host  file/rank  "
      "limit\n",
      report.capacity.has_gpus ? "  GPU peak" : "");
  for (const auto& row : found) text += row_text(report, row);
  return text;
}

std::string largest_json(const PlanReport& report, const std::vector<LargestGpt>& found) {
  const auto optional = [](const std::optional<int64_t>& value) { return value ? Json(*value) : Json(nullptr); };
  const GptShape any;
  Json document{{"num_hosts", report.num_nodes},
                {"ranks_per_host", report.ranks_of_node},
                {"pipeline_stages", found.front().setting.config.pipeline.stages},
                {"device", report.device.is_cpu() ? "cpu" : "cuda"},
                {"gpu_memory", optional(report.capacity.gpu_bytes)},
                {"host_memory", optional(report.capacity.host_bytes)},
                {"vocabulary", any.vocabulary},
                {"positions", any.positions},
                {"largest", Json::array()}};
  for (const auto& row : found) document["largest"].push_back(row_json(report, row));
  return dump_json(document, 2) + "\n";
}

}  // namespace dslaunch::runtime::engine::plan
