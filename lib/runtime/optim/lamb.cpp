// LAMB as DeepSpeed's FusedLamb computes it: Adam's direction, scaled for each parameter by |p| / |update|.
//
// A parameter may lie on several ranks, of the data axis and of the tensor axis. Each rank adds up the squares of its
// part in double; the sums of all ranks are all-gathered and added in rank order, so that any sharding gives the same
// ratio to the last bits of a double.
#include "runtime/optim/algorithms.hpp"

#include <algorithm>
#include <cmath>

#include "base/error.hpp"
#include "comm/communicator.hpp"
#include "runtime/device/device_module.hpp"
#include "runtime/optim/step_choice.hpp"
#include "runtime/state/parallel_ranges.hpp"
#include "runtime/state/pinned_memory.hpp"

namespace dslaunch::runtime::optim {
namespace {

constexpr int64_t kBlock = 8192;   // elements per partial sum
constexpr int64_t kGrain = 32768;  // minimum number of elements per thread

host::LambSums first_pass(const host::Range& all, const LambCoefficients& coefficients, float factor) {
  const int64_t num_blocks = (all.count + kBlock - 1) / kBlock;
  std::vector<host::LambSums> sums(static_cast<size_t>(num_blocks));
  const auto set = host::best_instruction_set();
  parallel_ranges(num_blocks, kGrain / kBlock, [&](int64_t begin, int64_t end) {
    for (int64_t block = begin; block < end; ++block) {
      const int64_t last = std::min(all.count, (block + 1) * kBlock);
      sums[static_cast<size_t>(block)] =
          host::update_lamb_moments(host::part(all, block * kBlock, last), coefficients, factor, set);
    }
  });
  host::LambSums sum;
  for (const auto& block : sums) {
    sum.parameter += block.parameter;
    sum.update += block.update;
  }
  return sum;
}

float ratio_of(const host::LambSums& sums, const LambCoefficients& c) {
  if (!(sums.parameter > 0.0 && sums.update > 0.0)) return 1.0F;
  const auto ratio = static_cast<float>(std::sqrt(sums.parameter) / std::sqrt(sums.update));
  return ratio > c.max_ratio ? c.max_ratio : ratio < c.min_ratio ? c.min_ratio : ratio;
}

// Through pinned memory, so that the host does not wait.
at::Tensor on_device(const std::vector<int64_t>& values, at::Device device) {
  at::Tensor host = pinned_if_possible({static_cast<int64_t>(values.size())}, at::kLong);
  std::copy(values.begin(), values.end(), host.mutable_data_ptr<int64_t>());
  return host.to(device, /*non_blocking=*/true);
}

class Lamb final : public FlatOptimizer {
 public:
  Lamb(const OptimizerGroups& groups, FlatLayout layout) : groups_(groups.groups), layout_(layout) {
    DSL_CHECK(layout.table != nullptr && layout.groups != nullptr, "Lamb needs the layout of the parameters");
  }

  const std::vector<std::string>& moment_names(int) const override {
    static const std::vector<std::string> names = {"exp_avg", "exp_avg_sq"};
    return names;
  }

  void step(std::span<const SpanState> states, const StepInputs& inputs) const override {
    if (states.empty()) return;
    const at::Device device = states[0].arrays.master.device();
    check_inputs(inputs, device);
    for (const auto& state : states) check_state(state, device, groups_.size(), 2);
    const std::vector<ParameterPart> parts = parts_of(states, inputs);
    if (device.is_cuda()) return step_on_device(parts, inputs, device);
    if (!is_skipped(inputs)) step_on_host(parts, inputs);
  }

 private:
  std::vector<ParameterPart> parts_of(std::span<const SpanState> states, const StepInputs& inputs) const {
    std::vector<ParameterPart> parts;
    for (const auto& [span, arrays] : states) {
      for (const auto& piece : pieces_in(layout_.groups->at(static_cast<size_t>(span.flat_group)), span.range)) {
        const int set = inputs.starts().set_of(piece.parameter, span.optimizer_group, groups_.size());
        parts.push_back({narrow(arrays, piece.offset, piece.count), set, piece.parameter});
      }
    }
    return parts;
  }

  LambCoefficients coefficients(size_t set, const StepInputs& inputs, const StepRates& rates) const {
    const size_t group = MomentStarts::group_of_set(set, groups_.size());
    return lamb_coefficients(groups_[group].settings, rates.of_group(group),
                             inputs.starts().step_of_set(set, groups_.size(), rates.step));
  }

  // fp64 [ranks, parameters, 2] from this rank's [parameters, 2]; on a device it is only enqueued.
  at::Tensor of_all_ranks(const at::Tensor& sums) const {
    const at::Tensor of_data_ranks = layout_.ranks != nullptr ? gather(sums, *layout_.ranks) : sums.unsqueeze(0);
    if (layout_.tensor_ranks == nullptr) return of_data_ranks;
    const at::Tensor counted = of_data_ranks.masked_fill(counted_elsewhere(sums.device()), 0);
    return gather(counted, *layout_.tensor_ranks).flatten(0, 1);
  }

  // [ranks, …] from each rank's tensor.
  static at::Tensor gather(const at::Tensor& own, comm::Communicator& ranks) {
    std::vector<int64_t> shape = own.sizes().vec();
    shape.insert(shape.begin(), ranks.size());
    at::Tensor all = at::empty(shape, own.options());
    ranks.all_gather({own.const_data_ptr(), own.nbytes(), comm::DType::kUInt8},
                     {all.mutable_data_ptr(), all.nbytes(), comm::DType::kUInt8});
    return all;
  }

  // [parameters, 1]: of which another tensor rank has the same elements and counts them.
  at::Tensor counted_elsewhere(at::Device device) const {
    at::Tensor out = host_memory_for(device, {num_parameters(), 1}, at::kBool);
    bool* next = out.mutable_data_ptr<bool>();
    for (const auto& info : layout_.table->parameters) {
      *next++ = info.slice ? info.slice->copy > 0 : layout_.tensor_ranks->rank() > 0;
    }
    return out.to(device, /*non_blocking=*/true);
  }

  int64_t num_parameters() const { return static_cast<int64_t>(layout_.table->parameters.size()); }

  void step_on_host(const std::vector<ParameterPart>& parts, const StepInputs& inputs) const {
    const StepRates& rates = select_rates(inputs);
    const float factor = gradient_factor(inputs);
    std::vector<LambCoefficients> by_set;
    for (size_t set = 0; set < inputs.starts().num_sets(groups_.size()); ++set) {
      by_set.push_back(coefficients(set, inputs, rates));
    }

    at::Tensor own = at::zeros({num_parameters(), 2}, at::kDouble);
    auto* sums = static_cast<host::LambSums*>(own.mutable_data_ptr());
    for (const auto& part : parts) {
      StateArrays arrays = part.arrays;
      arrays.gradient = arrays.gradient.to(at::kFloat);
      sums[part.parameter] = first_pass(host_range(arrays), by_set[static_cast<size_t>(part.coefficients)], factor);
    }
    const at::Tensor total = of_all_ranks(own).sum(0);
    const auto* totals = static_cast<const host::LambSums*>(total.const_data_ptr());
    const auto set = host::best_instruction_set();
    for (const auto& part : parts) {
      const LambCoefficients& c = by_set[static_cast<size_t>(part.coefficients)];
      const float ratio = ratio_of(totals[part.parameter], c);
      const host::Range all = host_range(part.arrays);
      parallel_ranges(all.count, kGrain, [&](int64_t begin, int64_t end) {
        host::update_lamb(host::part(all, begin, end), c, ratio, set);
      });
    }
  }

  void step_on_device(const std::vector<ParameterPart>& parts, const StepInputs& inputs, at::Device device) const {
    const auto by_set = device_coefficients<LambCoefficients>(
        inputs.starts().num_sets(groups_.size()), inputs, device,
        [&](size_t set, const StepRates& rates) { return coefficients(set, inputs, rates); });
    const at::Tensor sums =
        device::module().optim.lamb_moments(parts, num_parameters(), by_set, inputs, device, on_device);
    const at::Tensor ratios = device::module().optim.lamb_ratios(of_all_ranks(sums), by_set[0].value);
    for (const auto& part : parts) {
      device::module().optim.lamb(part, by_set[static_cast<size_t>(part.coefficients)], ratios, inputs);
    }
  }

  const std::vector<OptimizerGroup> groups_;
  const FlatLayout layout_;
};

}  // namespace

std::unique_ptr<FlatOptimizer> make_lamb(const OptimizerGroups& groups, FlatLayout layout) {
  return std::make_unique<Lamb>(groups, layout);
}

}  // namespace dslaunch::runtime::optim
