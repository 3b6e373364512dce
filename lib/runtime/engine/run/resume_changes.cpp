#include "runtime/engine/run/resume_changes.hpp"

#include <c10/core/ScalarType.h>

#include <cmath>
#include <cstdint>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>

#include "base/format.hpp"
#include "config/enum_names.hpp"
#include "config/load.hpp"
#include "runtime/checkpoint/name_match.hpp"
#include "runtime/optim/learning_rate.hpp"

namespace dslaunch::runtime::engine::run {
namespace {

using Json = nlohmann::json;

// A recorded config; empty members: it does not say.
struct Recorded {
  config::JobConfig config;
  bool has_optimizer = false;
  std::optional<int64_t> batch, data_ranks;
};

std::optional<int64_t> number_in(const Json& json, const char* key) {
  const auto found = json.find(key);
  return found != json.end() && found->is_number_integer() && found->get<int64_t>() > 0
             ? std::optional(found->get<int64_t>())
             : std::nullopt;
}

std::optional<Recorded> read_config(const std::string& text) {
  const Json json = Json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (!json.is_object()) return std::nullopt;
  Recorded out;
  out.has_optimizer = json.contains("optimizer");
  out.batch = number_in(json, "train_batch_size");
  const auto micro = number_in(json, "train_micro_batch_size_per_gpu");
  const auto accumulation = number_in(json, "gradient_accumulation_steps");
  if (out.batch && micro && accumulation) out.data_ranks = *out.batch / *accumulation / *micro;
  int64_t ranks_of_model = 1;
  for (const auto& [section, key] : {std::pair("pipeline", "stages"), std::pair("tensor_parallel", "size")}) {
    if (json.contains(section) && json[section].is_object()) {
      ranks_of_model *= number_in(json[section], key).value_or(1);
    }
  }
  auto loaded =
      config::load_text(text, "the checkpoint's config", config::Format::kHjson, {},
                        {.world_size = static_cast<int>(out.data_ranks.value_or(1) * ranks_of_model), .model = {}});
  if (!loaded.ok()) return std::nullopt;
  out.config = std::move(loaded.config);
  return out;
}

// Of the step after `position` steps; empty: the config does not say how long its schedule is.
std::optional<double> rate_at(const config::JobConfig& config, int64_t position) {
  const auto& scheduler = config.scheduler;
  if (scheduler.has_end() && !scheduler.total_num_steps) return std::nullopt;
  const auto group = static_cast<size_t>(optim::default_group_of(config.optimizer));
  return optim::learning_rate(scheduler, config.optimizer.lr, 0, position, group);
}

class Changes {
 public:
  Changes(const CheckpointMetadata& saved, const CheckpointMetadata& now, bool takes_moments)
      : saved_(saved), now_(now), takes_moments_(takes_moments) {}

  std::vector<ResumeChange> run() {
    compare_tensors();
    const auto before = read_config(saved_.config), after = read_config(now_.config);
    if (before && after) {
      compare_batch(*before, *after);
      if (!before->has_optimizer) return std::move(out_);  // an imported one, whose program made the optimizer
      if (takes_moments_) compare_optimizer(before->config, after->config);
      compare_rates(before->config, after->config);
    }
    return std::move(out_);
  }

 private:
  void info(std::string text) { out_.push_back({false, std::move(text)}); }
  void warn(std::string text) { out_.push_back({true, std::move(text)}); }

  void compare_tensors() {
    std::map<std::string, const SavedTensor*> saved;
    for (const auto& tensor : saved_.parameters) saved[tensor.name] = &tensor;
    std::vector<std::string> thawed, frozen, converted;
    for (const auto& tensor : now_.parameters) {
      const auto found = saved.find(tensor.name);
      if (found == saved.end()) continue;
      const SavedTensor& before = *found->second;
      if (tensor.trainable && !before.trainable) thawed.push_back(tensor.name);
      if (!tensor.trainable && before.trainable) frozen.push_back(tensor.name);
      if (tensor.dtype != before.dtype) {
        converted.push_back(
            fmt::format("{} ({} to {})", tensor.name, c10::toString(before.dtype), c10::toString(tensor.dtype)));
      }
    }
    if (!thawed.empty() && takes_moments_) {
      info("frozen in the checkpoint and trained from here on: " + list_names(thawed) +
           "; their moments are zero, and their steps are counted from here");
    }
    if (!frozen.empty() && takes_moments_) {
      info("trained in the checkpoint and frozen from here on: " + list_names(frozen) + "; their moments are dropped");
    }
    if (!converted.empty()) warn("of another type in the checkpoint, converted: " + list_names(converted));
  }

  // Moments of another name are an error of the reading.
  void compare_optimizer(const config::JobConfig& before, const config::JobConfig& after) {
    const auto is_adam = [](config::OptimizerType type) {
      return type == config::OptimizerType::kAdam || type == config::OptimizerType::kAdamW;
    };
    const auto from = before.optimizer.type, to = after.optimizer.type;
    if (from == to || (is_adam(from) && is_adam(to))) return;
    warn(
        fmt::format("the optimizer is {} and was {} in the checkpoint: moments of the same name are taken from there; "
                    "'checkpoint.load.load_optimizer_states' false with --resume PATH starts with fresh ones",
                    config::name_of(config::kOptimizerTypes, to), config::name_of(config::kOptimizerTypes, from)));
  }

  void compare_batch(const Recorded& before, const Recorded& after) {
    if (!before.batch || !after.batch || *before.batch == *after.batch) return;
    std::string ranks;
    if (before.data_ranks && after.data_ranks && *before.data_ranks != *after.data_ranks) {
      ranks = fmt::format(" ({} data ranks instead of {})", *after.data_ranks, *before.data_ranks);
    }
    const bool divides = !after.data_ranks || *before.batch % *after.data_ranks == 0;
    warn(
        fmt::format("the global batch is {} samples and was {} in the checkpoint{}: the losses are not those of the "
                    "run that saved it; to keep its batch: {}",
                    *after.batch, *before.batch, ranks,
                    divides ? fmt::format("--set train_batch_size={}", *before.batch)
                            : fmt::format("a number of data ranks that divides {}", *before.batch)));
  }

  void compare_rates(const config::JobConfig& before, const config::JobConfig& after) {
    const int64_t position = applied_steps(saved_) + schedule_offset(saved_);
    const auto from = rate_at(before, position), to = rate_at(after, position);
    if (!from || !to || std::abs(*from - *to) <= 1e-9 * std::max(std::abs(*from), std::abs(*to))) return;
    std::string length;
    const auto of_before = before.scheduler.total_num_steps, of_after = after.scheduler.total_num_steps;
    if (of_before && of_after && *of_before != *of_after) {
      length = fmt::format("; the schedule has {} steps and had {}", *of_after, *of_before);
    }
    warn(fmt::format("the learning rate of step {} is {:.4g}; the checkpoint's config had {:.4g} there{}",
                     saved_.step + 1, *to, *from, length));
  }

  const CheckpointMetadata& saved_;
  const CheckpointMetadata& now_;
  const bool takes_moments_;
  std::vector<ResumeChange> out_;
};

}  // namespace

std::vector<ResumeChange> describe_changes(const CheckpointMetadata& saved, const CheckpointMetadata& now,
                                           bool takes_moments) {
  return Changes(saved, now, takes_moments).run();
}

}  // namespace dslaunch::runtime::engine::run
