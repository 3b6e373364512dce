// `dslaunch plan --params N`: DeepSpeed's estimates of memory, for models and hosts that need not exist.
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "base/dump_json.hpp"
#include "base/format.hpp"
#include "base/quantity.hpp"
#include "plan_forms.hpp"

namespace dslaunch::launcher {
namespace {

using runtime::memory_plan::Estimate;
using runtime::memory_plan::EstimateInputs;
using Json = nlohmann::ordered_json;

// DeepSpeed's "GB".
double gibibytes(double bytes) {
  return bytes / (1U << 30U);
}

std::string counted(int count, const char* noun) {
  return fmt::format("{} {}{}", count, noun, count == 1 ? "" : "s");
}

const char* place(bool is_offloaded) {
  return is_offloaded ? "cpu" : "none";
}

std::string table_text(const std::vector<Estimate>& estimates, bool is_stage_3) {
  std::string text = is_stage_3 ? "ZeRO 3: GiB\n  per host    per GPU   offload_param  offload_optimizer  zero.Init\n"
                                : "ZeRO 2: GiB\n  per host    per GPU   offload_optimizer\n";
  for (const auto& each : estimates) {
    text += fmt::format("{:>10.2f} {:>10.2f}   ", gibibytes(each.host_bytes), gibibytes(each.gpu_bytes));
    if (is_stage_3) {
      text += fmt::format("{:<13}  {:<17}  {}\n", place(each.offloads_parameters), place(each.offloads_optimizer),
                          each.builds_sharded ? "yes" : "no");
    } else {
      text += fmt::format("{}\n", place(each.offloads_optimizer));
    }
  }
  return text;
}

Json table_json(const std::vector<Estimate>& estimates, bool is_stage_3) {
  Json rows = Json::array();
  for (const auto& each : estimates) {
    Json row{{"offload_optimizer", place(each.offloads_optimizer)},
             {"bytes_per_host", each.host_bytes},
             {"bytes_per_gpu", each.gpu_bytes}};
    if (is_stage_3) {
      row["offload_param"] = place(each.offloads_parameters);
      row["zero_init"] = each.builds_sharded;
    }
    rows.push_back(std::move(row));
  }
  return rows;
}

}  // namespace

std::string describe(const EstimatePlan& plan, bool json) {
  const EstimateInputs& inputs = plan.inputs;
  const bool has_layer = inputs.largest_layer > 0;
  const auto zero2 = estimate_zero2(inputs);
  const auto zero3 = has_layer ? estimate_zero3(inputs) : std::vector<Estimate>();
  if (json) {
    const Json document{{"num_parameters", inputs.num_parameters},
                        {"largest_layer", has_layer ? Json(inputs.largest_layer) : Json(nullptr)},
                        {"num_hosts", inputs.num_hosts},
                        {"gpus_per_host", inputs.gpus_per_host},
                        {"estimates_of", "DeepSpeed"},
                        {"zero2", table_json(zero2, false)},
                        {"zero3", has_layer ? table_json(zero3, true) : Json(nullptr)}};
    return dump_json(document, 2) + "\n";
  }
  std::string text = fmt::format(
      "{} parameters{}; {} with {}\n"
      "DeepSpeed's estimates for parameters, gradients and optimizer state (mixed precision, Adam); activations come "
      "on "
      "top\n\n",
      with_separators(inputs.num_parameters),
      has_layer ? fmt::format(", {} in the largest layer", with_separators(inputs.largest_layer)) : "",
      counted(inputs.num_hosts, "host"), counted(inputs.gpus_per_host, "GPU"));
  text += table_text(zero2, false) + "\n";
  return text + (has_layer ? table_text(zero3, true) : "ZeRO 3 needs the largest layer, too: --largest_layer N\n");
}

}  // namespace dslaunch::launcher
