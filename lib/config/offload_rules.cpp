// What zero_optimization.offload_optimizer and offload_param require, as far as the job file decides it. The worker
// checks the rest: memory, directories, devices.
#include <algorithm>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/format.hpp"
#include "base/nearest_name.hpp"
#include "config/coerce.hpp"
#include "config/key_table.hpp"
#include "config/rules.hpp"

namespace dslaunch::config {
namespace {

const std::string kOptimizer = "zero_optimization.offload_optimizer", kParam = "zero_optimization.offload_param";
const std::string kDelayedUpdate = kOptimizer + ".delayed_update";

// The elements of a sub-group of size 0, which published files have: it ends with a parameter in DeepSpeed.
constexpr int64_t kSmallestSubGroup = 65536;

std::string device_of(const Settings& settings, const std::string& section) {
  return settings.text(section + ".device");
}

bool is_offloaded(const Settings& settings, const std::string& section) {
  return device_of(settings, section) != "none";
}

// The key that chose the device, under the name that the file has, and the device: 'zero_optimization.cpu_offload' cpu.
std::string chosen_device(const Settings& settings, const std::string& section) {
  return fmt::format("'{}' {}", settings.written_as(section + ".device"), device_of(settings, section));
}

// Whether a key directly in the section has another value than its default.
bool changes_something(const Settings& settings, const std::string& section) {
  return std::any_of(settings.all().begin(), settings.all().end(), [&](const auto& entry) {
    const auto& [path, setting] = entry;
    return setting.given() && section_of(path) == section && setting.spec->status == Status::kSupported &&
           !same_content(setting.value, default_of(*setting.spec));
  });
}

// --nvme_path sets it in both sections, whether they are used or not.
bool has_directory_of_flag(const Settings& settings, const std::string& section) {
  const Setting& setting = settings.at(section + ".nvme_path");
  return setting.given() && setting.origin == "--nvme_path";
}

// DeepSpeed's documentation gives "cpu" as the default of `device`; its code has none.
void note_missing_device(Settings& settings, const std::string& section) {
  const std::string device = section + ".device";
  if (!settings.given(section) || settings.at(section).value.is_null()) return;
  if (settings.given(device) || settings.has_error(device) || has_directory_of_flag(settings, section)) return;
  settings.note(section, fmt::format("'{}' has no effect: its 'device' is not given, and none is the default; set it "
                                     "to \"cpu\" or \"nvme\"",
                                     section));
}

void check_stage(Settings& settings) {
  if (settings.has_error("zero_optimization.stage")) return;
  const int64_t stage = settings.integer("zero_optimization.stage");
  if (stage == 0 && is_offloaded(settings, kOptimizer)) {
    settings.add_error(Issue::Kind::kConflict, kOptimizer + ".device",
                       fmt::format("{} needs ZeRO stage 1, 2 or 3, but zero_optimization.stage is 0; set it to 1, also "
                                   "for one rank, or leave offload_optimizer out",
                                   chosen_device(settings, kOptimizer)));
  }
  if (stage < 3 && is_offloaded(settings, kParam)) {
    settings.note(kParam + ".device",
                  fmt::format("{} has no effect at ZeRO stage {}: parameters stay on the GPU there; set "
                              "zero_optimization.stage to 3 to offload them",
                              chosen_device(settings, kParam), stage));
    settings.solve(kParam + ".device", Value::of_string("none"));
  }
  const double ratio = settings.number(kOptimizer + ".ratio");
  if (stage < 3 && ratio < 1 && is_offloaded(settings, kOptimizer)) {
    settings.add_error(Issue::Kind::kConflict, kOptimizer + ".ratio",
                       fmt::format("'{0}.ratio' {1} needs ZeRO stage 3, but zero_optimization.stage is {2}: only there "
                                   "is state offloaded unit by unit; set the stage to 3, or the ratio to 1",
                                   kOptimizer, ratio, stage));
  }
}

void check_files(Settings& settings, const std::string& section) {
  const std::string path = section + ".nvme_path";
  const auto directories = settings.texts(path);
  if (std::find(directories.begin(), directories.end(), "") != directories.end()) {
    settings.add_error(Issue::Kind::kRange, path, fmt::format("'{}' has an empty name", path));
  }
  if (device_of(settings, section) != "nvme" || !directories.empty() || settings.has_error(path)) return;
  settings.add_error(Issue::Kind::kConflict, section + ".device",
                     fmt::format("{} needs '{}': a directory on a disk of each node, for example \"/local_nvme\", or a "
                                 "list of directories",
                                 chosen_device(settings, section), path));
}

// Sub-groups are updated one by one on a thread that takes part in no collective.
void check_optimizer(Settings& settings) {
  const std::string& type = settings.text("optimizer.type");
  const std::string_view whole = whole_parameters_of(type);
  if (!is_offloaded(settings, kOptimizer) || whole.empty()) return;
  settings.add_error(
      Issue::Kind::kConflict, "optimizer.type",
      fmt::format("'optimizer.type' {} cannot be offloaded: its step needs {}, whose parts are on other "
                  "ranks; choose an element-wise optimizer, for example AdamW, SGD or Lion, or leave {} out",
                  type, whole, kOptimizer));
}

void check_precision(Settings& settings) {
  if (!is_offloaded(settings, kOptimizer) || keeps_fp32_master(settings)) return;
  const std::string key = settings.given("amp.master_weights") ? "amp.master_weights" : "amp.opt_level";
  settings.add_error(Issue::Kind::kConflict, key,
                     fmt::format("'{}' {}: without fp32 master weights the optimizer cannot be offloaded; set "
                                 "amp.master_weights to true, or leave {} out",
                                 key, settings.given("amp.master_weights") ? "false" : settings.text(key), kOptimizer));
}

KeySpec warmup_steps() {
  KeySpec row{.path = "zero_optimization.offload_optimizer.delayed_update.warmup_steps", .kind = Kind::kInt};
  row.fallback = "0";
  return row.min(0);
}

// The object form with its number as an integer; empty: an error was added.
std::optional<Value> checked_delay(Settings& settings, Value given) {
  const auto add = [&](Issue::Kind kind, std::string message) {
    settings.add_error(kind, kDelayedUpdate, std::move(message));
    return std::nullopt;
  };
  for (auto& member : given.members) {
    if (member.key != "warmup_steps") {
      return add(Issue::Kind::kUnknownKey, fmt::format("unknown key '{}' in '{}'{}", member.key, kDelayedUpdate,
                                                       did_you_mean(member.key, {"warmup_steps"})));
    }
    auto steps = coerce(warmup_steps(), member.value);
    if (!steps.ok()) {
      return add(steps.error().out_of_range ? Issue::Kind::kRange : Issue::Kind::kType,
                 fmt::format("'{}.warmup_steps' {}", kDelayedUpdate, steps.error().message));
    }
    member.value = *std::move(steps);
  }
  return given;
}

void check_delayed_update(Settings& settings) {
  const Setting& setting = settings.at(kDelayedUpdate);
  const std::string origin = setting.value.is_text("auto") ? "auto" : setting.origin;
  if (setting.value.is_bool()) return;
  if (setting.value.is_null() || setting.value.is_text("auto")) {
    settings.solve(kDelayedUpdate, Value::of_bool(false), origin);
  } else if (!setting.value.is_object()) {
    settings.add_error(Issue::Kind::kType, kDelayedUpdate,
                       fmt::format("'{}' must be true, false or {{\"warmup_steps\": N}}, not {}", kDelayedUpdate,
                                   describe(setting.value)));
  } else if (auto delay = checked_delay(settings, setting.value)) {
    settings.solve(kDelayedUpdate, *std::move(delay), origin);
  }
}

bool uses_files(const Settings& settings) {
  return device_of(settings, kOptimizer) == "nvme" || device_of(settings, kParam) == "nvme";
}

// What bypasses the page cache moves whole pages.
void check_block_size(Settings& settings) {
  constexpr int64_t kPage = 4096;
  const std::string path = "aio.block_size";
  if (!uses_files(settings) || settings.has_error(path) || settings.integer(path) % kPage == 0) return;
  const int64_t given = settings.integer(path);
  settings.add_error(
      Issue::Kind::kRange, path,
      fmt::format(
          "'{}' must be a multiple of {}, which reads and writes past the page cache need, not {}; set it to {}", path,
          kPage, given, (given + kPage - 1) / kPage * kPage));
}

// Keys of offloading while nothing is offloaded, and keys that offloading leaves without effect.
void note_ineffective(Settings& settings) {
  const bool any = is_offloaded(settings, kOptimizer) || is_offloaded(settings, kParam);
  if (!uses_files(settings) && has_directory_of_flag(settings, kOptimizer)) {
    settings.note(kOptimizer + ".nvme_path",
                  "'--nvme_path' has no effect: nothing is kept in files, which takes the device nvme");
  }
  if (!uses_files(settings) && changes_something(settings, "aio")) {
    settings.note("aio", "'aio' has no effect: nothing is kept in files, which takes the device nvme");
  }
  const Setting& sub_groups = settings.at("zero_optimization.sub_group_size");
  if (!is_offloaded(settings, kOptimizer) && !same_content(sub_groups.value, default_of(*sub_groups.spec))) {
    settings.note("zero_optimization.sub_group_size",
                  "'zero_optimization.sub_group_size' has no effect without offload_optimizer: an update on the GPU "
                  "works on all of a rank's state at once");
  }
  if (!any) return;
  if (settings.boolean("graph_harvesting")) {
    settings.note("graph_harvesting",
                  "'graph_harvesting' has no effect with offloading: such steps are not captured as a CUDA graph");
  }
  settings.solve("graph_harvesting", Value::of_bool(false));
}

}  // namespace

void apply_offload_rules(Settings& settings) {
  note_missing_device(settings, kOptimizer);
  note_missing_device(settings, kParam);
  check_stage(settings);
  check_files(settings, kOptimizer);
  check_files(settings, kParam);
  check_optimizer(settings);
  check_precision(settings);
  check_block_size(settings);
  check_delayed_update(settings);
  note_ineffective(settings);
}

void build_offload(const Settings& settings, Zero& out) {
  const Value& delay = settings.at(kDelayedUpdate).value;
  const Value* steps = delay.find("warmup_steps");
  out.offload_optimizer.delayed_update = delay.is_object() || delay.boolean;
  out.offload_optimizer.delayed_after_steps = steps ? steps->integer : 0;
  if (out.sub_group_size == 0) out.sub_group_size = kSmallestSubGroup;
}

}  // namespace dslaunch::config
