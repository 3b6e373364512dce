// The section "tensor_parallel": DeepSpeed's names for its keys, and what it excludes. How products are split is in
// tensor_split_rules.cpp.
#include <algorithm>
#include <optional>
#include <string>
#include <vector>

#include "base/format.hpp"
#include "config/key_table.hpp"
#include "config/rules.hpp"

namespace dslaunch::config {
namespace {

const std::string kSize = "tensor_parallel.size", kProbe = "tensor_parallel.probe",
                  kEnabled = "tensor_parallel.enabled";

// DeepSpeed's names of the size.
const std::string kOtherNames[] = {"tensor_parallel.autotp_size", "tensor_parallel.tp_size",
                                   "tensor_parallel.tp.tp_size", "tensor_parallel.partition_config.tp_size", "mp_size"};

struct GivenSize {
  const std::string* key;
  int64_t size;
  bool is_from_file;
};

// Under the given names. An option of the command line overrides the file, whatever name either of them uses.
std::vector<GivenSize> given_sizes(const Settings& settings) {
  std::vector<GivenSize> out;
  const auto add = [&](const std::string& key) {
    const Setting& setting = settings.at(key);
    if (!setting.given() || setting.origin == "auto" || setting.value.is_null() || settings.has_error(key)) return;
    out.push_back({&key, std::max<int64_t>(1, setting.value.integer), setting.origin == "file"});
  };
  add(kSize);
  for (const auto& key : kOtherNames) add(key);
  if (std::any_of(out.begin(), out.end(), [](const auto& given) { return !given.is_from_file; }))
    std::erase_if(out, [](const auto& given) { return given.is_from_file; });
  return out;
}

void resolve_size(Settings& settings) {
  if (!settings.boolean(kEnabled)) return settings.solve(kSize, Value::of_int(1), kEnabled);
  const auto sizes = given_sizes(settings);
  if (sizes.empty()) return;
  const GivenSize& first = sizes.front();
  for (const auto& other : sizes) {
    if (other.size == first.size) continue;
    return settings.add_error(Issue::Kind::kConflict, *other.key,
                              fmt::format("'{}' is {} and '{}' is {}, but both are the size of the tensor groups; give "
                                          "one of them",
                                          *first.key, first.size, *other.key, other.size));
  }
  settings.solve(kSize, Value::of_int(first.size), settings.at(*first.key).origin);
}

void check_probe(Settings& settings) {
  const Value& probe = settings.at(kProbe).value;
  if (probe.is_text("distinct") || probe.is_text("all") || (probe.is_bool() && !probe.boolean)) return;
  if (probe.is_null() || probe.is_text("auto") || probe.is_bool()) {
    return settings.solve(kProbe, Value::of_string("distinct"), settings.at(kProbe).origin);
  }
  settings.add_error(Issue::Kind::kType, kProbe,
                     fmt::format("'{}' must be distinct, all or false, not {}", kProbe, describe(probe)));
}

// What does not work on parts of layers, one row each.
struct Exclusion {
  const char* key;
  const char* value;  // a text, or empty: true
  const char* reason;
};
constexpr const char* kOneBitReason =
    "its scales of values of one bit are those of whole parameters, whose parts are on the other tensor ranks; choose "
    "AdamW, Adam or Lamb";
constexpr Exclusion kExclusions[] = {
    {"fp8.enabled", "",
     "each rank would scale its part of a layer by the maximum of that part alone, so that a run would round otherwise "
     "with another number of ranks; set fp8.enabled to false"},
    {"optimizer.type", "Muon",
     "its step needs whole matrices, whose parts are on the other tensor ranks; choose AdamW, Adam, SGD, Lion, Adagrad "
     "or Lamb"},
    {"optimizer.type", "AdamW8bit",
     "its blocks are those of whole parameters, whose parts are on the other tensor ranks; choose AdamW"},
    {"optimizer.type", "OneBitAdam", kOneBitReason},
    {"optimizer.type", "OneBitLamb", kOneBitReason},
    {"optimizer.type", "ZeroOneAdam", kOneBitReason},
    {"optimizer.type", "Adafactor",
     "its step needs the mean squares of whole rows and columns, whose parts are on the other tensor ranks; choose "
     "AdamW, Adam, SGD, Lion, Adagrad or Lamb"},
};

void check_exclusions(Settings& settings, int64_t size) {
  for (const auto& row : kExclusions) {
    const Value& value = settings.at(row.key).value;
    const bool is_on = *row.value == '\0' ? value.is_bool() && value.boolean : value.is_text(row.value);
    if (!is_on) continue;
    settings.add_error(Issue::Kind::kConflict, row.key,
                       fmt::format("'{}' {} does not go with {} tensor ranks: {}, or set {} to 1", row.key,
                                   *row.value == '\0' ? "true" : row.value, size, row.reason, kSize));
  }
}

// Names what would need tensor ranks, unless their number was chosen.
void note_single_rank(Settings& settings) {
  if (!given_sizes(settings).empty() || settings.given(kEnabled)) return;
  for (const auto* key :
       {"tensor_parallel.sequence_parallel", "tensor_parallel.overlap", "tensor_parallel.policy", "injection_policy",
        "tensor_parallel.injection_policy_tuple", "tensor_parallel.partition_config"}) {
    const Setting& setting = settings.at(key);
    const bool is_off =
        setting.origin == "auto" || setting.value.is_null() || (setting.value.is_bool() && !setting.value.boolean);
    if (!settings.given(key) || is_off || settings.has_error(key)) continue;
    settings.note(key, fmt::format("'{}' has no effect with one tensor rank; set '{}' or --tp T", key, kSize));
  }
}

}  // namespace

void apply_tensor_parallel_rules(Settings& settings) {
  resolve_size(settings);
  check_probe(settings);
  check_split_rules(settings);
  const int64_t size = settings.has_error(kSize) ? 1 : settings.integer(kSize);
  if (size > 1) {
    check_exclusions(settings, size);
  } else {
    note_single_rank(settings);
  }
}

void build_tensor_parallel(const Settings& settings, TensorParallel& out) {
  const Value& probe = settings.at(kProbe).value;
  out.probe = probe.is_text("all")        ? TensorProbe::kAll
              : probe.is_text("distinct") ? TensorProbe::kDistinct
                                          : TensorProbe::kOff;
  out.rules = split_rules(settings);
  out.needs_rules = settings.boolean("tensor_parallel.partition_config.strict_mode");
}

}  // namespace dslaunch::config
