#include "runtime/engine/plan/require_memory.hpp"

#include "base/byte_size.hpp"
#include "base/error.hpp"
#include "base/format.hpp"
#include "runtime/engine/plan/plan_report.hpp"
#include "runtime/telemetry/host_memory.hpp"
#include "runtime/telemetry/memory_breakdown.hpp"

namespace dslaunch::runtime::engine::plan {
namespace {

using memory_plan::Capacity;
using memory_plan::Peak;
using memory_plan::RankMemory;
using memory_plan::Tier;
using memory_plan::Use;

// What pages are taken for: the ring through which updates go is mapped as a whole but used as far as it is needed.
RankMemory without_ring(const RankMemory& memory) {
  RankMemory out = memory;
  out.add(Tier::kHost, Use::kBuckets, -memory.of(Tier::kHost, Use::kBuckets));
  return out;
}

bool is_exceeded(const Peak& peak, const Capacity& capacity) {
  return fit_of(peak, capacity) == memory_plan::Fit::kNo;
}

std::string parts_text(const RankMemory& memory) {
  const auto part = [&](const char* name, int64_t bytes) {
    return bytes == 0 ? std::string() : fmt::format(", {} {}", name, format_bytes(bytes));
  };
  const auto of = [&](Use use) { return memory.of(Tier::kDevice, use); };
  const std::string text =
      part("parameters", of(Use::kParameters)) + part("gradients", of(Use::kGradients)) +
      part("optimizer state", of(Use::kMasters) + of(Use::kMoments)) +
      part("buffers", of(Use::kSlots) + of(Use::kBuckets) + of(Use::kBackwardBuckets) + of(Use::kUpdateCopies));
  return text.empty() ? text : text.substr(2);
}

[[noreturn]] void refuse(const RankMemory& memory, const Peak& peak, const Capacity& capacity, int stage,
                         bool for_evaluation) {
  throw UserError(
      ExitCode::kUnavailable,
      fmt::format("the run does not fit: its state {} (a rank's at ZeRO stage {}: {}), before any activations. {}; "
                  "'dslaunch plan MODEL.pt --config FILE' shows what each setting needs",
                  describe_excess(peak, capacity), stage, parts_text(memory),
                  for_evaluation ? "Use ZeRO stage 3 with more ranks or with offload_param"
                                 : "Use a higher ZeRO stage with more ranks, or offload_optimizer and offload_param"));
}

}  // namespace

Capacity read_capacity(at::Device device, int ranks_of_host) {
  return {.gpu_bytes = read_device_capacity(device),
          .host_bytes = read_available_memory(),
          .ranks_of_host = ranks_of_host,
          .has_gpus = !device.is_cpu()};
}

std::string require_memory(const PlannedModel& model, const config::JobConfig& config, const PlannedRank& rank,
                           const Capacity& capacity, int64_t estimated_activations) {
  const RankMemory memory = without_ring(plan_rank(model, config, rank));
  const int64_t offloaded = memory.total(Tier::kPageLocked) + memory.total(Tier::kHost);
  if (capacity.host_bytes && offloaded * capacity.ranks_of_host > *capacity.host_bytes) return {};  // its own check
  const bool accumulates = config.batch.accumulation > 1;
  const Peak of_state = peak_of(memory, capacity, /*points=*/{}, accumulates);
  if (is_exceeded(of_state, capacity)) refuse(memory, of_state, capacity, config.zero.stage, rank.for_evaluation);
  if (rank.for_evaluation) return {};
  const Peak estimated = peak_of(memory, capacity, memory_plan::points_of(estimated_activations), accumulates);
  if (!is_exceeded(estimated, capacity)) return {};
  return fmt::format(
      "the run may not fit: with an estimate of {} for the activations of a micro batch of {} it {}. A "
      "smaller micro batch with more accumulation steps, or \"activation_checkpointing\", needs less; "
      "'dslaunch plan MODEL.pt --config FILE --measure' measures them",
      format_bytes(estimated_activations), config.batch.micro_batch, describe_excess(estimated, capacity));
}

}  // namespace dslaunch::runtime::engine::plan
