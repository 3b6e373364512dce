// Loads a job's model file with the options that its config sets.
#pragma once
#include <c10/core/Device.h>

#include <memory>
#include <optional>
#include <string>

#include "comm/groups.hpp"
#include "config/job_config.hpp"
#include "config/model_defaults.hpp"
#include "runtime/device/device.hpp"
#include "runtime/model/fusion/services.hpp"
#include "runtime/model/interface/model.hpp"
#include "runtime/model/interface/runnable_model.hpp"

namespace dslaunch::runtime::engine::setup {

// What the model file records for its runs, to load the job file with. Throws UserError(65) if that is damaged.
config::ModelDefaults read_model_defaults(const std::string& path);

using ProgramLogPtr = std::shared_ptr<model::fusion::ProgramLog>;

// `device`: on which the model will run. `programs`: of its fused regions; null: problems are warnings.
std::unique_ptr<model::Model> load_model(const std::string& path, const config::JobConfig& config,
                                         const device::Device& device, const ProgramLogPtr& programs = {});

// What of a model a rank holds: one stage of a pipeline, of which each tensor rank has its part.
struct ModelPart {
  int num_stages = 1, stage = 0;
  int tensor_ranks = 1, tensor_rank = 0;
};

// Cut as config.pipeline says and split as config.tensor_parallel does; the whole model if there is one of each.
// `measurement`: of the layers' times, the same on all ranks; without it "time" is balanced by parameters.
std::unique_ptr<model::Model> load_part(const std::string& path, const config::JobConfig& config,
                                        const device::Device& device, const ModelPart& part,
                                        const std::optional<model::LayerMeasurement>& measurement = {},
                                        const ProgramLogPtr& programs = {});
// The same for a rank of a job. Where stages are balanced by time, rank 0 measures the layers on a micro batch of the
// job's data first. Collective.
std::unique_ptr<model::Model> load_part(const std::string& path, const config::JobConfig& config,
                                        const device::Device& device, const comm::Groups& groups,
                                        const ProgramLogPtr& programs = {});

// Compares the units of a model that is split as config.tensor_parallel says with their unsplit form, without ranks: on
// threads and CPUs, whatever `device` the model will run on. Throws as RunnableModel::probe_split() does.
model::ProbeReport probe_split(const std::string& path, const config::JobConfig& config, const device::Device& device);

// How units are recomputed; for a config that enables it.
model::RecomputationOptions recomputation_options(const config::JobConfig& config, at::Device device);

}  // namespace dslaunch::runtime::engine::setup
