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

}  // namespace dslaunch::runtime::engine::setup
