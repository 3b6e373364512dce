#include "config/rules.hpp"

#include <cmath>
#include <cstdlib>

#include "base/format.hpp"
#include "config/enum_names.hpp"

namespace dslaunch::config {
namespace {

constexpr double kSmallestHalf = 0x1p-24;  // a smaller loss scale has no benefit

// A loss scale in apex's notation: a number, a number as a text, or "dynamic" (empty here).
std::optional<double> static_scale(const Value& value) {
  if (value.is_int()) return static_cast<double>(value.integer);
  if (value.is_float()) return value.number;
  char* end = nullptr;
  const double number = std::strtod(value.text.c_str(), &end);
  return value.is_string() && !value.text.empty() && *end == 0 ? std::optional(number) : std::nullopt;
}

LossScale of_static(double scale) {
  LossScale out;
  out.kind = LossScaleKind::kStatic;
  out.initial = scale;
  out.hysteresis = 1;
  return out;
}

// apex's scaler and torch.amp.GradScaler: every overflow halves the scale, every window of clean steps doubles it.
LossScale of_torch() {
  LossScale out;
  out.kind = LossScaleKind::kDynamic;
  out.initial = 65536;
  out.window = 2000;
  out.hysteresis = 1;
  out.minimum = kSmallestHalf;
  out.late_growth = false;
  return out;
}

LossScale of_fp16(const Settings& settings, int stage) {
  const double fixed = settings.number("fp16.loss_scale");
  if (fixed > 0) return of_static(fixed);
  LossScale out;
  out.kind = LossScaleKind::kDynamic;
  out.initial = std::ldexp(1.0, static_cast<int>(settings.integer("fp16.initial_scale_power")));
  out.window = settings.integer("fp16.loss_scale_window");
  out.minimum = static_cast<double>(settings.integer("fp16.min_loss_scale"));
  // DeepSpeed's wrapper without ZeRO has no hysteresis.
  out.hysteresis = stage == 0 ? 1 : settings.integer("fp16.hysteresis");
  out.consecutive_hysteresis = stage != 0 && settings.boolean("fp16.consecutive_hysteresis");
  return out;
}

LossScale of_amp(const Settings& settings, bool dynamic_by_default) {
  const Value& given = settings.at("amp.loss_scale").value;
  if (const auto fixed = static_scale(given)) return of_static(*fixed);
  if (!dynamic_by_default && !given.is_text("dynamic")) return of_static(1);
  LossScale out = of_torch();
  const Value& minimum = settings.at("amp.min_loss_scale").value;
  if (!minimum.is_null()) out.minimum = minimum.number;
  out.maximum = settings.number("amp.max_loss_scale");
  return out;
}

bool boolean_or(const Settings& settings, const std::string& path, bool otherwise) {
  const Value& value = settings.at(path).value;
  return value.is_null() ? otherwise : value.boolean;
}

void build_amp(const Settings& settings, JobConfig& out) {
  const std::string& level = settings.text("amp.opt_level");
  if (level == "O0") return;
  out.loss_scale = of_amp(settings, /*dynamic_by_default=*/level != "O3");
  if (level == "O1") {
    out.autocast = ScalarType::kFp16;
    return;
  }
  out.precision = Precision::kFp16;
  out.keep_batch_norm = boolean_or(settings, "amp.keep_batchnorm_fp32", level == "O2");
  out.fp32_master = keeps_fp32_master(settings);
}

void build_torch_autocast(const Settings& settings, JobConfig& out) {
  out.autocast = find_value(kAutocastTypes, settings.text("torch_autocast.dtype")).value_or(ScalarType::kBf16);
  if (out.autocast == ScalarType::kFp16) out.loss_scale = of_torch();
}

Precision precision_of(const Settings& settings) {
  if (settings.boolean("bf16.enabled")) return Precision::kBf16;
  if (settings.boolean("fp16.enabled")) return Precision::kFp16;
  const bool is_deferred = settings.at("bf16.enabled").deferred || settings.at("fp16.enabled").deferred;
  return is_deferred ? Precision::kAuto : Precision::kFp32;
}

// The types of a run with "auto" are the worker's to choose, which checks them again.
void check_fp8(Settings& settings) {
  if (!settings.boolean("fp8.enabled")) {
    if (settings.given("fp8.recipe") && !settings.given("fp8.enabled")) {
      settings.note("fp8.recipe", "'fp8.recipe' has no effect: fp8.enabled is false");
    }
    return;
  }
  if (settings.boolean("bf16.enabled") || settings.at("bf16.enabled").deferred) return;
  settings.add_error(Issue::Kind::kConflict, "fp8.enabled",
                     "'fp8.enabled' needs \"bf16\": {\"enabled\": true}: what lies between the GEMMs in fp8 is bf16");
}

}  // namespace

void apply_precision_rules(Settings& settings) {
  const char* const kSections[] = {"fp16", "bf16", "amp", "torch_autocast"};
  std::string first;
  for (const std::string section : kSections) {
    if (!settings.boolean(section + ".enabled")) continue;
    if (!first.empty()) {
      settings.add_error(Issue::Kind::kConflict, section + ".enabled",
                         fmt::format("{} and {} are both enabled; enable one of them", first, section));
    }
    first = section;
  }
  check_fp8(settings);
  const Value& scale = settings.at("amp.loss_scale").value;
  if (!scale.is_null() && !scale.is_text("dynamic") && !(static_scale(scale).value_or(0) > 0)) {
    settings.add_error(
        Issue::Kind::kRange, "amp.loss_scale",
        fmt::format("'amp.loss_scale' must be \"dynamic\" or a number above 0, not {}", describe(scale)));
  }
}

bool keeps_fp32_master(const Settings& settings) {
  const std::string& level = settings.text("amp.opt_level");
  if (!settings.boolean("amp.enabled") || level == "O0" || level == "O1") return true;
  return boolean_or(settings, "amp.master_weights", level == "O2");
}

void build_precision(const Settings& settings, JobConfig& out) {
  out.precision = precision_of(settings);
  if (out.precision == Precision::kFp16) out.loss_scale = of_fp16(settings, out.zero.stage);
  if (settings.boolean("fp8.enabled")) {
    const Value& recipe = settings.at("fp8.recipe").value;
    out.fp8 = recipe.is_null() ? Fp8Recipe::kTensorwise : find_value(kFp8Recipes, recipe.text);
  }
  if (settings.boolean("amp.enabled")) build_amp(settings, out);
  if (settings.boolean("torch_autocast.enabled")) build_torch_autocast(settings, out);
}

}  // namespace dslaunch::config
