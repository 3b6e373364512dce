// What an export has recorded about the inputs of a model's forward (docs/huggingface.md), as arrays that are made up.
#pragma once
#include <string>
#include <vector>

#include "config/job_config.hpp"

namespace dslaunch::runtime::engine::bench {

// `metadata`: the record of the model file at `path` (ModelMetadata::text). Empty: it has none about inputs. Throws
// UserError(65) where it is damaged.
std::vector<config::ArraySpec> recorded_inputs(const std::string& metadata, const std::string& path);

// "input_ids (128) int64 below 256, labels (128) int64 below 256"
std::string describe_inputs(const std::vector<config::ArraySpec>& inputs);

}  // namespace dslaunch::runtime::engine::bench
