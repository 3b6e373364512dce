#include "config/rules.hpp"

#include <algorithm>
#include <string>

#include "base/format.hpp"
#include "base/split.hpp"
#include "config/key_table.hpp"
#include "config/parameter_groups.hpp"

namespace dslaunch::config {
namespace {

struct AcceptedBy {
  std::string_view type;
  std::string_view names;
  std::string_view defaults = {};  // of this type: "lr=0.01|eps=1e-6"
  std::string_view whole = {};     // what of whole parameters its step needs; empty: it is element-wise
};

// Of the optimizers that exchange values of one bit.
constexpr std::string_view kWholeMomentum = "the momentum of whole parameters";

constexpr AcceptedBy kOptimizers[] = {
    {"AdamW",
     "lr|betas|eps|weight_decay|bias_correction|adam_w_mode|torch_adam|amsgrad|maximize|set_grad_none|"
     "fp32_optimizer_states|foreach|fused|capturable|differentiable"},
    {"Adam",
     "lr|betas|eps|weight_decay|bias_correction|adam_w_mode|torch_adam|amsgrad|maximize|set_grad_none|"
     "fp32_optimizer_states|foreach|fused|capturable|differentiable"},
    {"SGD", "lr|momentum|dampening|weight_decay|nesterov|maximize|foreach|fused|differentiable"},
    {"Lion", "lr|betas|weight_decay|set_grad_none|fp32_optimizer_states"},
    {"Adagrad",
     "lr|eps|weight_decay|lr_decay|initial_accumulator_value|maximize|fp32_optimizer_states|foreach|fused|"
     "differentiable",
     "lr=0.01|eps=1e-10"},
    {"Lamb", "lr|betas|eps|weight_decay|bias_correction|eps_inside_sqrt|max_coeff|min_coeff", "",
     "the norm of each whole parameter"},
    {"Muon", "lr|muon_lr|adam_lr|momentum|betas|eps|weight_decay", "momentum=0.95|eps=1e-10", "whole matrices"},
    {"RMSprop", "lr|alpha|eps|weight_decay|momentum|centered|maximize|foreach|capturable|differentiable", "lr=0.01"},
    {"NAdam",
     "lr|betas|eps|weight_decay|momentum_decay|decoupled_weight_decay|maximize|foreach|capturable|differentiable",
     "lr=0.002"},
    {"RAdam", "lr|betas|eps|weight_decay|decoupled_weight_decay|maximize|foreach|capturable|differentiable"},
    {"Adamax", "lr|betas|eps|weight_decay|maximize|foreach|capturable|differentiable", "lr=0.002"},
    {"Adadelta", "lr|rho|eps|weight_decay|maximize|foreach|capturable|differentiable", "lr=1.0|eps=1e-6"},
    {"Rprop", "lr|etas|step_sizes|maximize|foreach|capturable|differentiable", "lr=0.01"},
    {"AdamW8bit", "lr|betas|eps|weight_decay|bias_correction|min_8bit_size", "weight_decay=0.01",
     "the largest magnitude of each block of a moment"},
    {"Adafactor", "lr|beta2_decay|eps1|eps2|d|weight_decay|maximize|foreach", "lr=0.01",
     "the mean squares of whole rows and columns"},
    {"OneBitAdam",
     "lr|betas|eps|weight_decay|freeze_step|bias_correction|eps_inside_sqrt|amsgrad|cuda_aware|comm_backend_name", "",
     kWholeMomentum},
    {"OneBitLamb",
     "lr|betas|eps|weight_decay|max_coeff|min_coeff|freeze_step|coeff_beta|factor_max|factor_min|factor_threshold|"
     "bias_correction|eps_inside_sqrt|amsgrad|cuda_aware|comm_backend_name",
     "", kWholeMomentum},
    {"ZeroOneAdam",
     "lr|betas|eps|weight_decay|var_freeze_step|var_update_scaler|local_step_scaler|local_step_clipper|"
     "bias_correction|eps_inside_sqrt|amsgrad|cuda_aware|comm_backend_name",
     "", kWholeMomentum},
    {"ASGD", "lr|lambd|alpha|t0|weight_decay|maximize|foreach|capturable|differentiable", "lr=0.01|alpha=0.75"},
};
constexpr AcceptedBy kSchedulers[] = {
    {"WarmupLR", "warmup_min_lr|warmup_max_lr|warmup_num_steps|warmup_type|last_batch_iteration"},
    {"WarmupDecayLR", "total_num_steps|warmup_min_lr|warmup_max_lr|warmup_num_steps|warmup_type|last_batch_iteration"},
    {"WarmupCosineLR",
     "total_num_steps|warmup_min_ratio|warmup_num_steps|cos_min_ratio|warmup_type|last_batch_iteration"},
    {"LRRangeTest",
     "lr_range_test_min_lr|lr_range_test_step_size|lr_range_test_step_rate|lr_range_test_staircase|"
     "last_batch_iteration"},
    {"OneCycle",
     "cycle_min_lr|cycle_max_lr|decay_lr_rate|cycle_first_step_size|cycle_second_step_size|cycle_first_stair_count|"
     "cycle_second_stair_count|decay_step_size|cycle_momentum|cycle_min_mom|cycle_max_mom|decay_mom_rate|"
     "last_batch_iteration"},
};

template <size_t N>
const AcceptedBy* row_of(const AcceptedBy (&table)[N], std::string_view type) {
  auto found =
      std::find_if(std::begin(table), std::end(table), [&](const AcceptedBy& row) { return row.type == type; });
  return found == std::end(table) ? nullptr : found;
}

template <size_t N>
bool accepts(const AcceptedBy (&table)[N], std::string_view type, std::string_view name) {
  const AcceptedBy* row = row_of(table, type);
  if (!row) return true;
  auto names = split(row->names, '|');
  return std::find(names.begin(), names.end(), name) != names.end();
}

// Adds errors for parameters that were given but that the chosen type does not accept.
template <size_t N>
void reject_unknown_parameters(Settings& settings, const std::string& section, const AcceptedBy (&table)[N],
                               const std::string& type) {
  const AcceptedBy* row = row_of(table, type);
  if (!row) return;
  for (const auto& [path, setting] : settings.all()) {
    if (!setting.given() || section_of(path) != section || last_name(path) == "max_grad_norm") continue;
    if (accepts(table, type, last_name(path))) continue;
    settings.add_error(Issue::Kind::kConflict, path,
                       fmt::format("'{}' is not a parameter of {}; its parameters are {}", path, type,
                                   fmt::join(split(row->names, '|'), ", ")));
  }
}

// Checks the total number of steps: it must leave room for the decay after the warm-up.
void check_total(Settings& settings, const std::string& type) {
  const std::string path = "scheduler.params.total_num_steps";
  const Setting& total = settings.at(path);
  if (total.deferred || settings.has_error(path)) return;
  if (total.value.is_null()) {
    settings.add_error(Issue::Kind::kConflict, settings.given("scheduler.params") ? "scheduler.params" : "scheduler",
                       fmt::format("{} needs scheduler.params.total_num_steps: a number, or \"auto\" for the steps of "
                                   "the run",
                                   type));
    return;
  }
  int64_t warmup = std::max<int64_t>(2, settings.integer("scheduler.params.warmup_num_steps"));
  int64_t steps = total.value.integer;
  if (type == "WarmupCosineLR" && steps == warmup) {
    settings.add_error(
        Issue::Kind::kConflict, path,
        fmt::format("'{}' {} equals the warm-up's {} steps, so the cosine has no steps; increase total_num_steps", path,
                    steps, warmup));
  } else if (steps < warmup) {
    settings.note(path,
                  fmt::format("'{}' {} is below the warm-up's {} steps: the rate never decays", path, steps, warmup));
  }
}

// Sets defaults that depend on the type, for parameters that were not given.
void apply_type_defaults(Settings& settings, const std::string& type) {
  const auto set = [&](const char* name, Value value) {
    const std::string path = std::string("optimizer.params.") + name;
    if (!settings.given(path)) settings.solve(path, std::move(value), "default");
  };
  if (const AcceptedBy* row = row_of(kOptimizers, type)) {
    for (const auto& entry : split(row->defaults, '|')) {
      const auto equals = entry.find('=');
      Value number;
      if (equals != entry.npos && parse_number(entry.substr(equals + 1), number)) {
        set(entry.substr(0, equals).c_str(), Value::of_float(number.number));
      }
    }
  }
  if (type != "Muon") return;
  const bool lr_given = settings.given("optimizer.params.lr");
  const double lr = settings.number("optimizer.params.lr");
  set("muon_lr", Value::of_float(lr_given ? lr : 0.02));
  set("adam_lr", Value::of_float(lr_given ? lr : 3e-4));
  set("betas", Value::of_array({Value::of_float(0.9), Value::of_float(0.95)}));
}

bool has_groups_with_lr(const Settings& settings) {
  const auto names = parameter_group_names(settings);
  return std::any_of(names.begin(), names.end(),
                     [&](const std::string& name) { return settings.given(parameter_group_path(name, "lr")); });
}

struct HuggingFaceSchedule {
  std::string_view name, type;
};
constexpr HuggingFaceSchedule kHuggingFaceSchedules[] = {
    {"linear", "WarmupDecayLR"}, {"cosine", "WarmupCosineLR"}, {"constant_with_warmup", "WarmupLR"}};

// Transformers' names stand for the schedules that its DeepSpeed integration maps them to, with Transformers' defaults.
void replace_hugging_face_schedule(Settings& settings) {
  const std::string name = settings.text("scheduler.type");
  const auto set = [&](const char* parameter, Value value) {
    const std::string path = std::string("scheduler.params.") + parameter;
    if (!settings.given(path)) settings.solve(path, std::move(value), "default");
  };
  if (name == "constant") {
    if (settings.given("scheduler.params") && !settings.at("scheduler.params").value.members.empty()) return;
    settings.note("scheduler.type", "'scheduler.type' constant: the learning rate does not change");
    settings.solve("scheduler.type", Value(), "solved");
    return;
  }
  const auto* row = std::find_if(std::begin(kHuggingFaceSchedules), std::end(kHuggingFaceSchedules),
                                 [&](const auto& each) { return each.name == name; });
  if (row == std::end(kHuggingFaceSchedules)) return;
  settings.note("scheduler.type",
                fmt::format("'scheduler.type' {} is {} here, with a linear warm-up", name, row->type));
  settings.solve("scheduler.type", Value::of_string(std::string(row->type)), "solved");
  set("warmup_type", Value::of_string("linear"));
  set("warmup_num_steps", Value::of_int(0));
  if (name == "cosine") set("cos_min_ratio", Value::of_float(0));
  if (name == "linear" && !settings.given("scheduler.params.warmup_max_lr")) {
    settings.solve("scheduler.params.warmup_max_lr", Value());  // the optimizer's, not DeepSpeed's 0.001
  }
  // DeepSpeed's shortest warm-up has two steps: without a warm-up they have the full rate.
  if (settings.integer("scheduler.params.warmup_num_steps") == 0) {
    set("warmup_min_ratio", Value::of_float(1));
    const bool rates_differ = settings.text("optimizer.type") == "Muon" || has_groups_with_lr(settings);
    if (!rates_differ) set("warmup_min_lr", Value::of_float(settings.number("optimizer.params.lr")));
  }
  const std::string total = "scheduler.params.total_num_steps";
  if (name != "constant_with_warmup" && !settings.given(total)) settings.defer(total);
}

// A schedule's list must have one value per optimizer group.
void check_lists(Settings& settings) {
  const size_t groups = num_optimizer_groups(settings);
  for (const auto& [path, setting] : settings.all()) {
    if (!setting.spec->per_group || !setting.value.is_array() || setting.value.items.size() == groups) continue;
    settings.add_error(
        Issue::Kind::kRange, path,
        fmt::format("'{}' has {} values, but the optimizer has {} parameter group{}: give one number, or "
                    "one for each group, the default group last",
                    path, setting.value.items.size(), groups, groups == 1 ? "" : "s"));
  }
}

void check_one_cycle(Settings& settings) {
  for (const char* path : {"scheduler.params.cycle_min_lr", "scheduler.params.cycle_max_lr"}) {
    if (!settings.at(path).value.is_null() || settings.has_error(path)) continue;
    settings.add_error(Issue::Kind::kConflict, settings.given("scheduler.params") ? "scheduler.params" : "scheduler",
                       fmt::format("OneCycle needs {}: a number", path));
  }
  const std::string cycling = "scheduler.params.cycle_momentum", optimizer = settings.text("optimizer.type");
  // NAdam has a schedule of its own for beta1.
  const bool has_betas = optimizer != "Muon" && optimizer != "NAdam" && optimizer_accepts(optimizer, "betas");
  if (settings.boolean(cycling) && !has_betas) {
    settings.note("scheduler.type",
                  fmt::format("{} has no betas that OneCycle changes: momentum cycling is off", optimizer));
    settings.solve(cycling, Value::of_bool(false), "solved");
  }
}

// Schedules with absolute rates overwrite the groups' own rates.
void note_overwritten_rates(Settings& settings, const std::string& type) {
  const bool absolute =
      type == "LRRangeTest" || type == "OneCycle" ||
      (scheduler_accepts(type, "warmup_max_lr") && !settings.at("scheduler.params.warmup_max_lr").value.is_null());
  if (!absolute) return;
  for (const auto& name : parameter_group_names(settings)) {
    const std::string path = parameter_group_path(name, "lr");
    if (!settings.given(path)) continue;
    settings.note(
        path, fmt::format("'{}' has no effect: {} sets the rates; give its values as lists with one number per group",
                          path, type));
  }
}

// Of the default group and of each that has a momentum of its own.
void check_nesterov(Settings& settings) {
  const auto need = [&](const std::string& path, bool holds) {
    if (holds) return;
    settings.add_error(
        Issue::Kind::kConflict, path,
        fmt::format("'{}': 'optimizer.params.nesterov' needs a momentum above 0 and no dampening", path));
  };
  need("optimizer.params.nesterov",
       settings.number("optimizer.params.momentum") > 0 && settings.number("optimizer.params.dampening") == 0);
  for (const auto& group : parameter_groups(settings))
    need(parameter_group_path(group.name, "momentum"), !group.momentum || *group.momentum > 0);
}

void check_pair(Settings& settings, const std::string& name) {
  const std::string path = "optimizer.params." + name;
  const size_t count = settings.at(path).value.items.size();
  if (count == 2) return;
  settings.add_error(Issue::Kind::kRange, path, fmt::format("'{}' must be two numbers, not {}", path, count));
}

void check_rprop(Settings& settings) {
  const auto need = [&](const std::string& path, bool (*holds)(double, double), const char* what) {
    const auto& items = settings.at(path).value.items;
    if (items.size() != 2 || settings.has_error(path) || holds(items[0].number, items[1].number)) return;
    settings.add_error(Issue::Kind::kRange, path, fmt::format("'{}' must be {}", path, what));
  };
  need(
      "optimizer.params.etas", [](double minus, double plus) { return minus < 1 && plus > 1; },
      "a number below 1 and one above 1");
  need(
      "optimizer.params.step_sizes", [](double low, double high) { return low <= high; },
      "the smallest step size and the largest");
  if (settings.at("scheduler.type").value.is_null()) return;
  settings.add_error(
      Issue::Kind::kConflict, "scheduler.type",
      "'scheduler.type' has no effect on Rprop: 'optimizer.params.lr' is the size of its first step, and "
      "signs of gradients change it from there; leave the scheduler out");
}

void need_ordered_bounds(Settings& settings, const std::string& low, const std::string& high) {
  const std::string section = "optimizer.params.";
  if (settings.number(section + low) <= settings.number(section + high)) return;
  settings.add_error(Issue::Kind::kRange, section + low, fmt::format("'{0}{1}' is above '{0}{2}'", section, low, high));
}

// Of the optimizers that exchange values of one bit.
void check_one_bit(Settings& settings, const std::string& type) {
  const auto refuse = [&](const std::string& path, const std::string& what) {
    settings.add_error(Issue::Kind::kConflict, path, what);
  };
  const int64_t stage = settings.integer("zero_optimization.stage"), stages = settings.integer("pipeline.stages");
  if (stage > 0) {
    refuse("zero_optimization.stage",
           fmt::format("{} needs ZeRO stage 0, but zero_optimization.stage is {}: every rank adds its own gradient to "
                       "the momentum of whole parameters; set the stage to 0, or choose AdamW",
                       type, stage));
  }
  if (stages > 1) {
    refuse("pipeline.stages",
           fmt::format("{} does not go with {} pipeline stages: its steps count the gradients of ranks that hold the "
                       "whole model; set pipeline.stages to 1, or choose AdamW",
                       type, stages));
  }
  if (settings.boolean("optimizer.params.amsgrad")) {
    refuse(
        "optimizer.params.amsgrad",
        fmt::format("'optimizer.params.amsgrad' is rejected for {}, as in DeepSpeed: its variance is fixed after the "
                    "warm-up; leave it out",
                    type));
  }
  for (const char* name : {"bias_correction", "eps_inside_sqrt"}) {
    const std::string path = std::string("optimizer.params.") + name;
    if (settings.given(path)) {
      settings.note(path,
                    fmt::format("'{}' has no effect: {} accepts it and does not use it, as in DeepSpeed", path, type));
    }
    settings.solve(path, Value::of_bool(false), "solved");
  }
  if (type == "OneBitLamb") need_ordered_bounds(settings, "factor_min", "factor_max");
}

}  // namespace

bool optimizer_accepts(std::string_view type, std::string_view name) {
  return accepts(kOptimizers, type, name);
}
bool scheduler_accepts(std::string_view type, std::string_view name) {
  return accepts(kSchedulers, type, name);
}

std::string_view whole_parameters_of(std::string_view type) {
  const AcceptedBy* row = row_of(kOptimizers, type);
  return row ? row->whole : std::string_view();
}

void apply_optimizer_rules(Settings& settings) {
  const std::string type = settings.text("optimizer.type");
  if (settings.at("optimizer").value.is_null()) {
    settings.note("no optimizer section: AdamW with learning rate 0.001");
  } else if (!settings.given("optimizer.type") && !settings.has_error("optimizer.type")) {
    settings.note("optimizer", "no optimizer.type: AdamW");
  }
  if (settings.given("optimizer.params.max_grad_norm")) {
    settings.add_error(
        Issue::Kind::kConflict, "optimizer.params.max_grad_norm",
        "'optimizer.params.max_grad_norm' is rejected, as in DeepSpeed: set gradient_clipping at the top level");
  }
  reject_unknown_parameters(settings, "optimizer.params", kOptimizers, type);
  apply_type_defaults(settings, type);
  for (const char* name : {"betas", "etas", "step_sizes"}) check_pair(settings, name);
  if (type == "Rprop") check_rprop(settings);
  // DeepSpeed uses torch.optim.AdamW for either name, and torch.optim.Adam only if adam_w_mode is false.
  if (settings.boolean("optimizer.params.torch_adam")) {
    const bool is_adamw = type == "AdamW" || settings.boolean("optimizer.params.adam_w_mode");
    if (is_adamw && !settings.given("optimizer.params.weight_decay")) {
      settings.solve("optimizer.params.weight_decay", Value::of_float(0.01), "default");
    }
  }
  if (type == "SGD" && settings.boolean("optimizer.params.nesterov")) check_nesterov(settings);
  if (type == "Lamb" || type == "OneBitLamb") need_ordered_bounds(settings, "min_coeff", "max_coeff");
  if (whole_parameters_of(type) == kWholeMomentum) check_one_bit(settings, type);
  check_parameter_groups(settings, type);
}

void apply_scheduler_rules(Settings& settings) {
  replace_hugging_face_schedule(settings);
  const Setting& chosen = settings.at("scheduler.type");
  if (chosen.value.is_null()) {
    if (settings.given("scheduler.params") && !settings.at("scheduler.params").value.is_null() &&
        !settings.has_error("scheduler.type")) {
      settings.add_error(Issue::Kind::kConflict, "scheduler.params",
                         "'scheduler.params' needs 'scheduler.type' beside it");
    }
    return;
  }
  const std::string type = chosen.value.text;
  reject_unknown_parameters(settings, "scheduler.params", kSchedulers, type);
  if (!row_of(kSchedulers, type)) return;

  if (scheduler_accepts(type, "warmup_max_lr")) {
    const Setting& max_lr = settings.at("scheduler.params.warmup_max_lr");
    double lr = settings.number("optimizer.params.lr");
    const bool rates_differ = settings.text("optimizer.type") == "Muon" || has_groups_with_lr(settings);
    if (max_lr.origin == "default" && type == "WarmupDecayLR") {
      settings.solve("scheduler.params.warmup_max_lr", Value::of_float(0.001), "default");
    } else if (max_lr.value.is_null() && !rates_differ) {
      settings.solve("scheduler.params.warmup_max_lr", Value::of_float(lr),
                     max_lr.origin == "auto" ? "auto" : "solved");
    }
  }
  if (scheduler_accepts(type, "total_num_steps")) {
    const Setting &steps = settings.at("train.steps"), &epochs = settings.at("train.epochs");
    // If epochs are given too, the end depends on the size of the data, which only the worker reads.
    if (settings.at("scheduler.params.total_num_steps").deferred && !steps.value.is_null() && epochs.value.is_null()) {
      settings.solve("scheduler.params.total_num_steps", steps.value, "auto");
    }
    check_total(settings, type);
  }
  if (type == "OneCycle") check_one_cycle(settings);
  note_overwritten_rates(settings, type);
  check_lists(settings);
}

}  // namespace dslaunch::config
