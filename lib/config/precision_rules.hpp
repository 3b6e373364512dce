// Derives one precision and one loss scale from fp16, bf16, amp and torch_autocast, and rejects combinations that
// exclude each other.
#pragma once
#include <optional>
#include <string>

#include "config/job_config.hpp"
#include "config/settings.hpp"

namespace dslaunch::config {

// Adds errors for sections that contradict each other and values that give no valid loss scale.
void apply_precision_rules(Settings& settings);

// Fills precision, loss_scale, autocast, keep_batch_norm, fp32_master and tf32. The ZeRO stage must be set already.
void build_precision(const Settings& settings, JobConfig& out);

// The type named by a key, by any of the names in the key's row of the table; empty: null.
std::optional<ScalarType> scalar_type_of(const Settings& settings, const std::string& path);

}  // namespace dslaunch::config
