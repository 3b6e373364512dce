#include "config/optimizer_rules.hpp"

#include <algorithm>
#include <string>
#include <vector>

#include "base/format.hpp"
#include "config/key_table.hpp"

namespace dslaunch::config {
namespace {

struct Takes {
  std::string_view type;
  std::string_view names;
};

constexpr Takes kOptimizers[] = {
    {"AdamW",
     "lr|betas|eps|weight_decay|bias_correction|adam_w_mode|torch_adam|amsgrad|set_grad_none|fp32_optimizer_states|"
     "foreach|fused|capturable|differentiable"},
    {"Adam",
     "lr|betas|eps|weight_decay|bias_correction|adam_w_mode|torch_adam|amsgrad|set_grad_none|fp32_optimizer_states|"
     "foreach|fused|capturable|differentiable"},
    {"SGD", "lr|momentum|dampening|weight_decay|nesterov|maximize|foreach|fused|differentiable"},
};
constexpr Takes kSchedulers[] = {
    {"WarmupLR", "warmup_min_lr|warmup_max_lr|warmup_num_steps|warmup_type"},
    {"WarmupDecayLR", "total_num_steps|warmup_min_lr|warmup_max_lr|warmup_num_steps|warmup_type"},
    {"WarmupCosineLR", "total_num_steps|warmup_min_ratio|warmup_num_steps|cos_min_ratio|warmup_type"},
};

template <size_t N>
const Takes* row_of(const Takes (&table)[N], std::string_view type) {
  auto found = std::find_if(std::begin(table), std::end(table), [&](const Takes& row) { return row.type == type; });
  return found == std::end(table) ? nullptr : found;
}

template <size_t N>
bool takes(const Takes (&table)[N], std::string_view type, std::string_view name) {
  const Takes* row = row_of(table, type);
  if (!row) return true;
  auto names = split(row->names, '|');
  return std::find(names.begin(), names.end(), name) != names.end();
}

// Complains about parameters that were given and that the chosen type does not take.
template <size_t N>
void refuse_strangers(Settings& settings, const std::string& section, const Takes (&table)[N],
                      const std::string& type) {
  const Takes* row = row_of(table, type);
  if (!row) return;
  for (const auto& [path, setting] : settings.all()) {
    if (!setting.given() || section_of(path) != section || last_name(path) == "max_grad_norm") continue;
    if (takes(table, type, last_name(path))) continue;
    settings.complain(
        Issue::Kind::kConflict, path,
        fmt::format("'{}' is no parameter of {}; it takes {}", path, type, fmt::join(split(row->names, '|'), ", ")));
  }
}

// Where the rate changes over to decay, and a total that leaves no room for it.
void check_total(Settings& settings, const std::string& type) {
  const std::string path = "scheduler.params.total_num_steps";
  const Setting& total = settings.at(path);
  if (total.deferred) return;
  if (total.value.is_null()) {
    settings.complain(Issue::Kind::kConflict, settings.given("scheduler.params") ? "scheduler.params" : "scheduler",
                      fmt::format("{} needs scheduler.params.total_num_steps: a number, or \"auto\" for the steps of "
                                  "the run",
                                  type));
    return;
  }
  int64_t warmup = std::max<int64_t>(2, settings.integer("scheduler.params.warmup_num_steps"));
  int64_t steps = total.value.integer;
  if (type == "WarmupCosineLR" && steps == warmup) {
    settings.complain(
        Issue::Kind::kConflict, path,
        fmt::format("'{}' {} equals the warm-up's {} steps, which leaves the cosine no length; make one of "
                    "them larger",
                    path, steps, warmup));
  } else if (steps < warmup) {
    settings.note(path,
                  fmt::format("'{}' {} is below the warm-up's {} steps: the rate never decays", path, steps, warmup));
  }
}

}  // namespace

bool optimizer_takes(std::string_view type, std::string_view name) {
  return takes(kOptimizers, type, name);
}
bool scheduler_takes(std::string_view type, std::string_view name) {
  return takes(kSchedulers, type, name);
}

void apply_optimizer_rules(Settings& settings) {
  const std::string type = settings.text("optimizer.type");
  if (settings.at("optimizer").value.is_null()) {
    settings.note("no optimizer section: AdamW with learning rate 0.001");
  } else if (!settings.given("optimizer.type")) {
    settings.note("optimizer", "no optimizer.type: AdamW");
  }
  if (settings.given("optimizer.params.max_grad_norm")) {
    settings.complain(
        Issue::Kind::kConflict, "optimizer.params.max_grad_norm",
        "'optimizer.params.max_grad_norm' is refused, as in DeepSpeed: write gradient_clipping at the top "
        "level");
  }
  refuse_strangers(settings, "optimizer.params", kOptimizers, type);
  if (const auto& betas = settings.at("optimizer.params.betas"); betas.value.items.size() != 2) {
    settings.complain(Issue::Kind::kRange, "optimizer.params.betas",
                      fmt::format("'optimizer.params.betas' must be two numbers, not {}", betas.value.items.size()));
  }
  if (settings.boolean("optimizer.params.torch_adam")) {
    if (type == "AdamW" && !settings.given("optimizer.params.weight_decay")) {
      settings.solve("optimizer.params.weight_decay", Value::of_float(0.01), "default");
    }
    if (type == "Adam" && !settings.given("optimizer.params.adam_w_mode")) {
      settings.solve("optimizer.params.adam_w_mode", Value::of_bool(false), "default");
    }
  }
  bool nesterov = type == "SGD" && settings.boolean("optimizer.params.nesterov");
  if (nesterov &&
      (settings.number("optimizer.params.momentum") <= 0 || settings.number("optimizer.params.dampening") != 0)) {
    settings.complain(Issue::Kind::kConflict, "optimizer.params.nesterov",
                      "'optimizer.params.nesterov' needs a momentum above 0 and no dampening");
  }
}

void apply_scheduler_rules(Settings& settings, std::optional<int64_t> steps) {
  const Setting& chosen = settings.at("scheduler.type");
  if (chosen.value.is_null()) {
    if (settings.given("scheduler.params") && !settings.at("scheduler.params").value.is_null()) {
      settings.complain(Issue::Kind::kConflict, "scheduler.params",
                        "'scheduler.params' needs 'scheduler.type' beside it");
    }
    return;
  }
  const std::string type = chosen.value.text;
  refuse_strangers(settings, "scheduler.params", kSchedulers, type);
  if (!row_of(kSchedulers, type)) return;

  if (scheduler_takes(type, "warmup_max_lr")) {
    const Setting& max_lr = settings.at("scheduler.params.warmup_max_lr");
    double lr = settings.number("optimizer.params.lr");
    if (!max_lr.given() && type == "WarmupDecayLR") {
      settings.solve("scheduler.params.warmup_max_lr", Value::of_float(0.001), "default");
    } else if (max_lr.value.is_null()) {
      settings.solve("scheduler.params.warmup_max_lr", Value::of_float(lr),
                     max_lr.origin == "auto" ? "auto" : "solved");
    }
  }
  if (scheduler_takes(type, "total_num_steps")) {
    if (settings.at("scheduler.params.total_num_steps").deferred && steps) {
      settings.solve("scheduler.params.total_num_steps", Value::of_int(*steps), "auto");
    }
    check_total(settings, type);
  }
}

}  // namespace dslaunch::config
