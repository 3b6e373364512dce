// Loads a job's model file with the options that its config sets.
#pragma once
#include <c10/core/Device.h>

#include <memory>
#include <string>

#include "config/job_config.hpp"
#include "runtime/model/model.hpp"

namespace dslaunch::runtime::engine::setup {

// `device`: on which the model will run.
std::unique_ptr<model::Model> load_model(const std::string& path, const config::JobConfig& config, at::Device device);
// One stage of a pipeline of `num_stages`, cut as config.pipeline says; the whole model if there is one stage.
std::unique_ptr<model::Model> load_stage(const std::string& path, const config::JobConfig& config, at::Device device,
                                         int num_stages, int stage);

}  // namespace dslaunch::runtime::engine::setup
