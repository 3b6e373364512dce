// Initial values out of a directory of Hugging Face: "init": {"from": DIR} (docs/huggingface.md, Large models).
#pragma once
#include <string>

#include "config/job_config.hpp"
#include "runtime/model/interface/model.hpp"

namespace dslaunch::runtime::engine::setup {

// Lets the values of `model`, which was exported empty from Hugging Face, come from init.from: buffers now, parameters
// slice by slice when they are read. Does nothing for a model that has values, unless `replaces` them. `path`: of the
// model file. Throws UserError: 66 if the directory does not exist, 65 if the model is not from Hugging Face, if
// tensors are missing, unexpected or of another shape, or if a file is invalid.
void take_pretrained_values(model::Model& model, const config::Init& init, const std::string& path,
                            bool replaces = false);

}  // namespace dslaunch::runtime::engine::setup
