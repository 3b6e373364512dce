// Optimizers over spans of flat parameters. The element-wise ones (Adam, SGD, Lion, Adagrad) update each element of the
// fp32 master from the same element of the gradient and the moments, so a span may be cut anywhere and the result is
// the same bit by bit. LAMB needs norms, Adafactor means over rows and columns and Muon matrices of whole parameters;
// they get the parts that other ranks hold through the communicator of the layout. The
// 1-bit optimizers compress whole parameters, which every rank holds. Results do not depend on the number
// of threads.
//
// Host tensors are updated before the call returns, by the threads that parallel_ranges() uses. CUDA tensors are
// updated on the current stream without a host synchronization: the kernels read factor, skip and count of applied
// steps there. One thread at a time per optimizer; optimizers have no state of their own (their state is in the
// moments) but for Adafactor, AdamW8bit and the 1-bit optimizers.
#pragma once
#include <ATen/core/Tensor.h>

#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "runtime/optim/moment_starts.hpp"
#include "runtime/optim/optimizer_groups.hpp"
#include "runtime/optim/step_rates.hpp"
#include "runtime/state/state_arrays.hpp"

namespace dslaunch::comm {
class Communicator;
}

namespace dslaunch::runtime::optim {

// The host does not learn in time whether the device's last steps were skipped, so it may not know how many were
// applied. Then `rates` holds one entry for each possible count, with consecutive steps, and the device selects by its
// own counter: the entry whose step is *applied_steps + 1. That entry must exist; an update without it stops with an
// error (host) or a trap (device).
struct StepInputs {
  std::vector<StepRates> rates;  // one, or with applied_steps at least one
  at::Tensor applied_steps;      // 0-dim int64 on the arrays' device, this step not counted; undefined: uses rates[0]
  std::shared_ptr<const MomentStarts> moment_starts;  // null: all at 0 applied steps
  at::Tensor gradient_factor;  // 0-dim fp32 on the arrays' device (averaging, clipping); undefined: 1
  at::Tensor skip;             // 0-dim fp32 on the arrays' device; undefined or 0: an ordinary step; otherwise nothing
                               // is written: neither master nor moments nor the low-precision copy. The same on all
                               // ranks.

  const MomentStarts& starts() const {
    static const MomentStarts kAtZero;
    return moment_starts ? *moment_starts : kAtZero;
  }
};

// How the flat parameters lie on the ranks, for optimizers that need whole parameters. Must outlive the optimizers.
struct FlatLayout {
  const ParameterTable* table = nullptr;
  const std::vector<FlatGroup>* groups = nullptr;
  comm::Communicator* ranks = nullptr;  // each flat group is split evenly among them; null: this rank holds all of it
  // Each holds its own slices of parameters, and the parameters without a slice as all others do; null: one.
  comm::Communicator* tensor_ranks = nullptr;
  // Each holds all flat groups (ZeRO stage 0), and its own gradients where an optimizer does not average them; null:
  // one, or the optimizer makes no steps.
  comm::Communicator* replicas = nullptr;
  int num_replicas = 1;
};

// Of a parameter, beside moments or instead of them: what a checkpoint stores of it.
struct OwnState {
  int parameter = 0;
  std::string name;
  int64_t begin = 0;  // of the values of that name
  at::Tensor values;  // 1-D, fp32
};
// Fills `out` with the values from `begin` on; false: the checkpoint has none of that name.
using ReadOwnState = std::function<bool(int parameter, const std::string& name, int64_t begin, at::Tensor out)>;

class FlatOptimizer {
 public:
  virtual ~FlatOptimizer() = default;
  // The names under which a checkpoint stores the moments of that optimizer group; empty for one without state.
  virtual const std::vector<std::string>& moment_names(int group) const = 0;
  // The value of a moment before the first step.
  virtual double initial_moment(int /*group*/, size_t /*moment*/) const { return 0.0; }
  // Whether the `step`-th applied step takes gradients that are averaged over the ranks; else each rank gives its own,
  // and the step is collective among FlatLayout::replicas. The host knows exactly how many steps were applied before
  // it: its inputs have the rates of that step alone.
  virtual bool averages_gradients(int64_t /*step*/) const { return true; }
  // State that is not one fp32 value for each element is the optimizer's own: Adafactor's means, AdamW8bit's codes.
  // What it takes for all spans of a rank:
  virtual int64_t own_state_bytes(std::span<const StateSpan> /*spans*/) const { return 0; }
  // For all spans of this rank, as it is before the first step, on the masters' device.
  virtual void allocate_own_state(std::span<const SpanState> /*states*/) {}
  // What this rank saves of it; of what several ranks of the layout have, one saves it.
  virtual std::vector<OwnState> own_state() const { return {}; }
  virtual void restore_own_state(const ReadOwnState& /*read*/) {}
  // One step over spans whose arrays are all on one device. Writes masters, moments and low-precision copies.
  // Element-wise optimizers take any part of a rank's spans in any order; only where moments began at different steps
  // does it matter where the spans lie. LAMB, Adafactor, Muon and the 1-bit optimizers take all spans of this rank in
  // one call, which all ranks of the layout make together. Gradients are fp32; on the host element-wise optimizers read
  // bf16 and fp16 too, with the same result as from the gradient widened to fp32. Throws InternalError for tensors that
  // do not match, UserError 69 for CUDA tensors without the CUDA module.
  virtual void step(std::span<const SpanState> states, const StepInputs& inputs) const = 0;
};

// The names of the moments are in docs/optimizers.md. The arithmetic of Lion, LAMB and Muon is that of DeepSpeed, of
// all others torch.optim's. Throws UserError 65 for Nesterov momentum without momentum or with dampening.
std::unique_ptr<FlatOptimizer> make_flat_optimizer(const OptimizerGroups& groups, FlatLayout layout);

}  // namespace dslaunch::runtime::optim
