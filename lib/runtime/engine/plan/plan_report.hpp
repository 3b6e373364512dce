// What `dslaunch plan MODEL.pt` prints: settings side by side, as a table or as a JSON document. Pure; any thread.
#pragma once
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "runtime/engine/plan/plan_settings.hpp"
#include "runtime/memory_plan/rank_memory.hpp"

namespace dslaunch::runtime::engine::plan {

// Of one micro batch on one rank.
struct Activations {
  std::vector<memory_plan::StepPoint> points;
  std::string origin;  // "measured on cpu", "given"
  // Where the head's logits exist whole (kernels.chunked_cross_entropy false, as by default at stage 3); empty: the
  // same.
  std::vector<memory_plan::StepPoint> with_whole_logits = {};
};

struct PlanReport {
  std::string model;  // as the user named it
  int64_t num_parameters = 0, num_trained = 0;
  int64_t num_parameters_of_rank = 0;  // of the stage that has the most
  size_t num_units = 0;
  std::string fp8;                                   // which layers compute in fp8; empty: none
  std::optional<model::PlacementReport> placements;  // what tensor ranks split; empty: there is one
  int num_nodes = 1, ranks_of_node = 1, num_data_ranks = 1;
  at::Device device = at::kCPU;
  memory_plan::Capacity capacity;
  bool is_host_memory_of_this_machine = false;
  std::optional<Activations> activations;
  std::vector<PlannedSetting> settings;
};

// "host memory 20.00 GiB", and where that comes from if the user may think of other hosts.
std::string host_memory_text(const PlanReport& report);

std::string report_text(const PlanReport& report);
std::string report_json(const PlanReport& report);

// Of a setting; empty without any.
std::span<const memory_plan::StepPoint> activation_points(const std::optional<Activations>& activations,
                                                          const config::JobConfig& config);

memory_plan::Peak peak_of(const PlannedSetting& setting, const PlanReport& report);

// "needs 95.10 GiB on each GPU, which has 79.20 GiB"; empty unless it does not fit.
std::string describe_excess(const memory_plan::Peak& peak, const memory_plan::Capacity& capacity);

// "none", "cpu", "nvme".
std::string text_of(config::OffloadDevice device);

}  // namespace dslaunch::runtime::engine::plan
