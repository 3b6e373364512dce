#include "runtime/engine/plan/predict_step.hpp"

#include <algorithm>
#include <map>
#include <numeric>
#include <string>
#include <string_view>

namespace dslaunch::runtime::engine::plan {
namespace {

using config::OffloadDevice;

constexpr double kUpdateBytes = 28;     // of a parameter: master, two moments and gradient read, three written, a copy
constexpr double kStateFileBytes = 24;  // master and moments, read and written
constexpr double kGradientBytes = 4;

double seconds(double amount, double rate) {
  return amount == 0 ? 0 : amount / rate;
}

// "layers.3.attn" of "layers.3.attn.qkv.weight"; empty for a parameter outside of attention.
std::string attention_module(const std::string& name) {
  const auto is_word = [](std::string_view part) {
    return part.find("attn") != part.npos || part.find("attention") != part.npos;
  };
  for (size_t begin = 0, end = 0; end != name.npos; begin = end + 1) {
    end = name.find('.', begin);
    if (end == name.npos) break;  // the parameter itself
    if (is_word(std::string_view(name).substr(begin, end - begin))) return name.substr(0, end);
  }
  return {};
}

}  // namespace

// The widest matrix is that of the queries or of the output, whose shorter side is the width; keys and values may have
// fewer heads.
int64_t count_attention_width(const ParameterTable& table) {
  std::map<std::string, int64_t> widths;
  for (const auto& parameter : table.parameters) {
    const std::string module = attention_module(parameter.name);
    if (module.empty() || parameter.shape.size() != 2) continue;
    int64_t& width = widths[module];
    width = std::max(width, std::min(parameter.shape[0], parameter.shape[1]));
  }
  return std::accumulate(widths.begin(), widths.end(), int64_t{0},
                         [](int64_t sum, const auto& each) { return sum + each.second; });
}

double rate_within_host(const Rates& rates, c10::Device device, int ranks_of_host) {
  constexpr double kAccessesOfByte = 4;
  return device.is_cpu() ? rates.host_bytes / (kAccessesOfByte * ranks_of_host) : rates.link_bytes;
}

StepTimes predict_step(const config::JobConfig& config, const StepWork& work, const Rates& rates) {
  const config::Zero& zero = config.zero;
  const double ranks = work.num_data_ranks, accumulation = static_cast<double>(config.batch.accumulation);
  const double trained = static_cast<double>(work.num_trained), own = zero.stage >= 1 ? trained / ranks : trained;
  const auto size = static_cast<double>(work.compute_size);
  StepTimes out;

  const double positions = accumulation * static_cast<double>(config.batch.micro_batch * work.positions_per_sample);
  // Multiply-adds of a position: with each parameter, and with each key and value in each layer.
  const double products = static_cast<double>(work.num_parameters) +
                          2 * static_cast<double>(work.attention_width * work.positions_per_sample);
  const double pass = 2 * products * positions;  // FLOPs of a forward
  const double forward = seconds(pass, rates.flops);
  const double backward = seconds((config.recomputation.enabled ? 3 : 2) * pass, rates.flops);
  out.compute = forward + backward;

  // A collective over all parameters, each way.
  const double once = ranks > 1 ? seconds((ranks - 1) / ranks * size * trained, rates.network_bytes) : 0;
  const double gathers = zero.stage == 3 ? accumulation * once : 0;  // of forward
  const double gathered_again = 1 - work.share_kept;                 // for backward
  const double reductions = zero.stage >= 2 ? accumulation * once : once;
  const double publication = zero.stage < 3 ? once : 0;
  const double of_state = (1 + gathered_again) * gathers + reductions + publication;

  // All-reduces of activations, of one pass over the layers.
  const double tensor_ranks = work.tensor_ranks;
  const double summed =
      tensor_ranks > 1
          ? seconds(2 * (tensor_ranks - 1) / tensor_ranks * size * positions * static_cast<double>(work.reduced_width),
                    work.tensor_bytes)
          : 0;
  const double summed_backward = (config.recomputation.enabled ? 2 : 1) * summed;
  const double hidden_sums = config.tensor_parallel.overlap.value_or(true) ? std::min(summed, pass / rates.flops) : 0;
  out.communication = of_state + summed + summed_backward;

  const bool offloads_state = zero.offload_optimizer.device != OffloadDevice::kNone;
  const bool offloads_parameters = zero.stage == 3 && zero.offload_param.device != OffloadDevice::kNone;
  const double share = offloads_state ? zero.offload_optimizer.ratio : 0;
  const double host_of_rank = rates.host_bytes / work.ranks_of_host,
               file_of_rank = rates.file_bytes / work.ranks_of_host;
  const double on_device = seconds((1 - share) * own * kUpdateBytes, rates.device_bytes);
  const double gradient_size = accumulation > 1 ? kGradientBytes : size;
  const bool state_in_files = zero.offload_optimizer.device == OffloadDevice::kFile;
  const bool parameters_in_files = offloads_parameters && zero.offload_param.device == OffloadDevice::kFile;
  const auto kept = static_cast<double>(zero.offload_param.max_in_cpu);
  const double stored = parameters_in_files ? std::max(0.0, own - kept) * size : 0;  // bytes of parameters
  double on_host = seconds(share * own * kUpdateBytes, host_of_rank);
  const double to_files = stored + (state_in_files ? share * own * (kStateFileBytes + gradient_size) : 0);
  on_host = std::max(on_host, seconds(to_files, file_of_rank));
  out.update = on_device + on_host;
  // Added up on the device, gradients of later micro batches come up and go down again.
  const double gradient_trips = zero.stage >= 2 ? 2 * accumulation - 1 : 1;
  double down = seconds(share * own * gradient_size * gradient_trips, rates.link_bytes);
  if (state_in_files) down = std::max(down, seconds(share * own * gradient_size * gradient_trips, file_of_rank));
  const double up = seconds(share * own * size, rates.link_bytes);
  double parameters = offloads_parameters ? seconds(accumulation * own * size, rates.link_bytes) : 0;  // of one pass
  parameters = std::max(parameters, seconds(accumulation * stored, file_of_rank));
  out.transfers = down + up + (1 + gathered_again) * parameters;

  const bool overlaps = zero.overlap_comm, reduces_at_once = zero.stage >= 2;
  const double exposed = overlaps ? 0 : of_state;
  const bool is_delayed = offloads_state && zero.offload_optimizer.delayed_update;
  const double host_update = std::max(on_host, up);
  const auto hidden = [&](double communication) { return overlaps ? communication : 0; };
  // Of one micro batch. The first forward overlaps what is left of the update before it, the last backward the
  // reduction of a sum.
  const double one_forward = std::max({forward + summed, hidden(gathers), parameters}) / accumulation;
  const double one_backward = std::max({backward + summed_backward - hidden_sums,
                                        hidden(gathered_again * gathers + (reduces_at_once ? reductions : 0)),
                                        gathered_again * parameters, reduces_at_once ? down : 0}) /
                              accumulation;
  // While a pipeline fills and drains: the forwards and backwards of one micro batch in each other stage. zb-h1 fills
  // that of the backwards with gradients of weights.
  const bool splits_backward = config.pipeline.schedule == config::PipelineSchedule::kZbH1;
  const double bubble =
      static_cast<double>(config.pipeline.stages - 1) * (one_forward + (splits_backward ? 0 : one_backward));
  const double first_forward = std::max({one_forward, hidden(publication), is_delayed ? 0 : host_update});
  const double last_backward = reduces_at_once ? one_backward : std::max({one_backward, hidden(reductions), down});
  out.step =
      first_forward + (accumulation - 1) * (one_forward + one_backward) + last_backward + bubble + exposed + on_device;
  if (is_delayed) out.step = std::max(out.step, host_update);
  if (offloads_state || offloads_parameters) {
    // What the bounds hide of an update, a run does not hide whole: offload is never predicted to be the faster choice.
    config::JobConfig resident = config;
    resident.zero.offload_optimizer.device = resident.zero.offload_param.device = OffloadDevice::kNone;
    out.step = std::max(out.step, predict_step(resident, work, rates).step);
  }
  return out;
}

}  // namespace dslaunch::runtime::engine::plan
