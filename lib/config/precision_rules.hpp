// What fp16, bf16, amp and torch_autocast come to: one precision, one loss scale; and which of them exclude each other.
#pragma once
#include <optional>
#include <string>

#include "config/job_config.hpp"
#include "config/settings.hpp"

namespace dslaunch::config {

// Complains about sections that contradict each other and values that make no loss scale.
void apply_precision_rules(Settings& settings);

// Fills precision, loss_scale, autocast, keep_batch_norm, fp32_master and tf32. The ZeRO stage must be right already.
void build_precision(const Settings& settings, JobConfig& out);

// The type that a key names, by any of the names that its row in the table of keys lists; empty: null.
std::optional<ScalarType> scalar_type_of(const Settings& settings, const std::string& path);

}  // namespace dslaunch::config
