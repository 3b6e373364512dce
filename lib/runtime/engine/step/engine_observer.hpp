// The events of a training step for those that watch it: verification, diagnosis, checkpoints. On the engine's thread.
#pragma once
#include <cstdint>
#include <functional>
#include <span>

#include "runtime/state/state_arrays.hpp"

namespace dslaunch::runtime::engine::step {

// The current step's update, with its learning rates and gradient factor, of all spans of this rank or copies of them.
using ApplyUpdate = std::function<void(std::span<SpanState>)>;

class EngineObserver {
 public:
  virtual ~EngineObserver() = default;
  // Nothing of the step has run, nor has it taken any data.
  virtual void begin_step(int64_t /*step*/) {}
  // The gradients are complete; the update that follows on the current stream writes masters, moments and parameters. A
  // reader of the state enqueues its wait here. `update` may be applied to copies.
  virtual void before_update(std::span<const SpanState> /*state*/, const ApplyUpdate& /*update*/) {}
  // Whether updates of offloaded state may begin while the step's last backward runs: before_update() then comes when
  // some of that state has been written. Asked before that backward.
  virtual bool allows_early_updates() const { return false; }
};

}  // namespace dslaunch::runtime::engine::step
