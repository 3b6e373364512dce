// `dslaunch plan --largest`: the largest GPT that a setting has memory for. Pure but for list_settings(); one thread.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "runtime/engine/plan/plan_report.hpp"

namespace dslaunch::runtime::engine::plan {

// That of `tools/export gpt`: learned positions, an output layer of its own.
struct GptShape {
  int64_t hidden = 0, blocks = 0;
  int64_t vocabulary = 50304, positions = 2048;
};
// The number of blocks that published models of this width have: 12 at 768, 32 at 4,096, 128 at 25,600; between them on
// a line, beyond them one for each 200.
GptShape gpt_of_width(int64_t hidden);
// As a model file of this shape would be read.
PlannedModel gpt_model(const GptShape& shape);
// The stages of a pipeline, cut by parameters between blocks; the embeddings are with the first one. Empty: it has
// fewer layers than stages.
std::vector<PlannedModel> gpt_stages(const GptShape& shape, int num_stages);

struct LargestGpt {
  PlannedSetting setting;         // with the memory of the model, or of the stage that needs the most of its device
  std::optional<GptShape> shape;  // empty: not even the smallest one fits
  int64_t num_parameters = 0;
  std::optional<int64_t> activations;  // bytes of the micro batches that a rank keeps, as estimated or given
  std::string limit;                   // what the next larger one exceeds: "GPU", "host"
};

// For each setting of the job. Widths are multiples of 128. `report`: capacity, ranks, device and, if given,
// activations; its model and settings are ignored.
std::vector<LargestGpt> find_largest_gpts(const PlanReport& report, const JobSource& job);

std::string largest_text(const PlanReport& report, const std::vector<LargestGpt>& found);
std::string largest_json(const PlanReport& report, const std::vector<LargestGpt>& found);

}  // namespace dslaunch::runtime::engine::plan
