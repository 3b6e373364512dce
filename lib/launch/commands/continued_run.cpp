#include "launch/commands/continued_run.hpp"

#include <algorithm>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string_view>

#include "base/format.hpp"
#include "base/run_checkpoints.hpp"
#include "base/small_file.hpp"
#include "launch/supervisor/restart.hpp"

namespace dslaunch::launch {
namespace {

using Json = nlohmann::json;

constexpr size_t kMaxManifestBytes = size_t{512} << 20;
constexpr std::string_view kGivenCut = "layers:";
const std::string kPartition = "pipeline.partition", kBatch = "train_batch_size";

Json parse(const std::string& text) {
  return Json::parse(text, nullptr, /*allow_exceptions=*/false);
}

int64_t count_in(const Json& json, const char* pointer) {
  const Json::json_pointer at(pointer);
  if (!json.contains(at) || !json.at(at).is_number_integer()) return 0;
  return std::max<int64_t>(0, json.at(at).get<int64_t>());
}

bool is_chosen(const config::Settings& settings, const std::string& key) {
  const std::string& origin = settings.at(key).origin;
  return origin != "default" && origin != "auto" && origin != "solved";
}

void keep_batch(const Json& recorded, const config::LoadResult& now, KeptSettings& out) {
  const int64_t batch = count_in(recorded, "/train_batch_size");
  const int64_t micro = count_in(recorded, "/train_micro_batch_size_per_gpu");
  const int64_t accumulation = count_in(recorded, "/gradient_accumulation_steps");
  if (batch == 0 || micro == 0 || accumulation == 0 || batch % micro != 0 || batch / micro % accumulation != 0) return;
  const int64_t ranks = batch / micro / accumulation;
  const auto& own = now.config.batch;
  if (batch == own.train_batch || ranks == now.data_ranks || is_chosen(now.settings, kBatch)) return;
  const auto split = split_batch(batch, own.micro_batch, now.data_ranks);
  if (!split) return;  // the ranks report the other batch
  out.sets.push_back(fmt::format("{}={}", kBatch, batch));
  out.sets.push_back(fmt::format("train_micro_batch_size_per_gpu={}", split->micro_batch));
  out.sets.push_back(fmt::format("gradient_accumulation_steps={}", split->accumulation));
  out.lines.push_back(fmt::format(
      "the checkpoint's global batch of {} is kept: micro batch {} x accumulation {} x {} data ranks (it was {} x {} x "
      "{}); --set {}=N takes another",
      batch, split->micro_batch, split->accumulation, now.data_ranks, micro, accumulation, ranks, kBatch));
}

void keep_cut(const Json& recorded, const config::LoadResult& now, KeptSettings& out) {
  const int64_t stages = now.config.pipeline.stages;
  if (stages == 1 || count_in(recorded, "/pipeline/stages") != stages) return;
  const Json::json_pointer at("/pipeline/partition");
  if (!recorded.contains(at) || !recorded.at(at).is_string()) return;
  const std::string cut = recorded.at(at).get<std::string>();
  const bool is_open = now.config.pipeline.partition == config::PipelinePartition::kTime;
  if (!cut.starts_with(kGivenCut) || (is_chosen(now.settings, kPartition) && !is_open)) return;
  out.sets.push_back(fmt::format("{}={}", kPartition, cut));
  out.lines.push_back(fmt::format("the pipeline is cut as before, with '{}' {}", kPartition, cut));
}

}  // namespace

KeptSettings settings_to_keep(const std::string& recorded, const config::LoadResult& now) {
  KeptSettings out;
  const Json config = parse(recorded);
  if (!config.is_object()) return out;
  keep_batch(config, now, out);
  keep_cut(config, now, out);
  return out;
}

std::optional<int64_t> steps_to_train_on(const config::Scheduler& scheduler, std::optional<int64_t> steps,
                                         int64_t last_step) {
  if (!scheduler.has_end()) return 2 * last_step;
  const auto end = scheduler.total_num_steps ? scheduler.total_num_steps : steps;
  if (!end || last_step >= *end) return std::nullopt;
  return scheduler.total_num_steps ? std::min(2 * last_step, *end) : *end;
}

std::string config_of_checkpoint(const std::string& path) {
  const std::string checkpoint = newest_checkpoint(path);
  if (checkpoint.empty()) return {};
  const SmallFile file = read_plain_file(checkpoint + "/manifest.json", kMaxManifestBytes);
  const Json manifest = file.outcome.ok() ? parse(file.bytes) : Json();
  if (!manifest.is_object() || !manifest.contains("config") || !manifest["config"].is_string()) return {};
  return manifest["config"].get<std::string>();
}

}  // namespace dslaunch::launch
