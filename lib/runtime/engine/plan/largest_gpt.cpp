#include "runtime/engine/plan/largest_gpt.hpp"

#include <algorithm>
#include <iterator>
#include <nlohmann/json.hpp>

#include "base/byte_size.hpp"
#include "base/dump_json.hpp"
#include "base/format.hpp"
#include "base/quantity.hpp"
#include "runtime/engine/plan/estimate_activations.hpp"
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

// The plan of one width for one setting.
class Attempt {
 public:
  Attempt(const PlanReport& report, const PlannedSetting& setting) : report_(report), setting_(setting) {}

  LargestGpt plan(int64_t hidden) const {
    LargestGpt out{setting_, gpt_of_width(hidden), 0, {}, {}};
    const PlannedModel model = gpt_model(*out.shape);
    out.num_parameters = model.table.num_elements();
    out.setting.memory =
        plan_rank(model, setting_.config, {.device = report_.device, .num_data_ranks = report_.num_data_ranks});
    const auto dtype =
        precision::choose_precision(setting_.config.precision, setting_.config.keep_batch_norm, report_.device)
            .compute_dtype;
    const int64_t positions = setting_.config.batch.micro_batch * out.shape->positions;
    out.activations = report_.activations ? report_.activations->bytes
                                          : estimate_activations(model.table, setting_.config, positions, dtype);
    return out;
  }
  Peak peak(const LargestGpt& of) const {
    return memory_plan::peak_of(of.setting.memory, report_.capacity, of.activations.value_or(0),
                                setting_.config.batch.accumulation > 1);
  }
  bool fits(const LargestGpt& of) const { return fit_of(peak(of), report_.capacity) != Fit::kNo; }
  std::string limit(const LargestGpt& of) const {
    const auto& gpu = report_.capacity.gpu_bytes;
    return gpu && peak(of).gpu_bytes > *gpu ? "GPU" : "host";
  }

 private:
  const PlanReport& report_;
  const PlannedSetting& setting_;
};

LargestGpt find_largest(const PlanReport& report, const PlannedSetting& setting) {
  const Attempt attempt(report, setting);
  int64_t fits = 0, exceeds = kMaxWidth / kWidthStep + 1;  // in steps of the width
  while (exceeds - fits > 1) {
    const int64_t middle = fits + (exceeds - fits) / 2;
    (attempt.fits(attempt.plan(middle * kWidthStep)) ? fits : exceeds) = middle;
  }
  LargestGpt found{setting, {}, 0, {}, {}};
  if (fits > 0) found = attempt.plan(fits * kWidthStep);
  if (exceeds * kWidthStep <= kMaxWidth) found.limit = attempt.limit(attempt.plan(exceeds * kWidthStep));
  return found;
}

double in_gib(int64_t bytes) {
  return static_cast<double>(bytes) / (int64_t{1} << 30);
}

Peak peak_of_largest(const PlanReport& report, const LargestGpt& of) {
  return memory_plan::peak_of(of.setting.memory, report.capacity, of.activations.value_or(0),
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
      "{} host{} with {} {}; {}host memory {}\n", report.num_nodes, report.num_nodes == 1 ? "" : "s",
      report.ranks_of_node,
      fmt::format("{}{}", report.device.is_cpu() ? "CPU rank" : "GPU", report.ranks_of_node == 1 ? "" : "s"),
      report.capacity.gpu_bytes ? fmt::format("GPU memory {}, ", gibibytes(*report.capacity.gpu_bytes)) : "",
      report.capacity.host_bytes ? gibibytes(*report.capacity.host_bytes) : "not known");
  text += report.activations
              ? fmt::format("GiB; activations of a rank given: {}\n\n", gibibytes(report.activations->bytes))
              : fmt::format("GiB; activations of a micro batch of {} estimated from the shapes\n\n", batch.micro_batch);
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
