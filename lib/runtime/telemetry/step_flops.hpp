// The multiply-accumulates of the matrix products, convolutions and attention that run while this object exists, by the
// shapes of their operators (model/operators/operator_flops.hpp) and by the part of the step that they belong to. What
// a recomputation repeats is a part of backward. Work that a CUDA graph replays calls no operator and is not seen.
//
// Constructed, read and destroyed on the engine's thread; operators come from any thread.
#pragma once
#include <atomic>
#include <cstdint>
#include <memory>

#include "runtime/telemetry/operator_scopes.hpp"

namespace dslaunch::runtime {

struct StepMacs {
  int64_t forward = 0, backward = 0, update = 0;
  int64_t total() const { return forward + backward + update; }
};

class StepFlops {
 public:
  StepFlops();

  // From here on, what no backward node calls belongs to the update.
  void begin_update() { is_in_update_ = true; }
  StepMacs read() const;

  // For OperatorScopes.
  std::unique_ptr<at::ObserverContext> begin(const at::RecordFunction& call);
  void end(const at::RecordFunction& call, at::ObserverContext* context);

 private:
  struct Call;
  std::atomic<int64_t> forward_{0}, backward_{0}, update_{0};
  std::atomic<bool> is_in_update_{false};
  OperatorScopes<StepFlops> scopes_;  // last: it calls the rest
};

}  // namespace dslaunch::runtime
