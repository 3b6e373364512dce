// The options of a model that `infer` and `serve` run.
#pragma once
#include <c10/core/Device.h>

#include <memory>
#include <string>

#include "command_line/option_table.hpp"
#include "runtime/device/device.hpp"
#include "runtime/engine/inference/infer_model.hpp"
#include "runtime/engine/inference/text_model.hpp"

namespace dslaunch::worker {

// The device that --device asks for. Throws as open_device().
at::Device open_device_of(const command_line::OptionTable& options);

// The model that the options name; `dtype`: "fp32", "bf16", "fp16", or empty.
runtime::engine::inference::ModelSource model_source(const command_line::OptionTable& options,
                                                     const runtime::device::Device& device, const std::string& dtype);

// What keeps the tokens that it has read.
runtime::engine::inference::TextModelOptions text_model_options(const command_line::OptionTable& options);

}  // namespace dslaunch::worker
