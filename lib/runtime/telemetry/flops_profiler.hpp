// "flops_profiler": the cost of one forward pass by module. In the profiled step it observes the operators that the
// model calls and the calls of its modules, on the engine's thread; every other step costs nothing. With accumulation
// the forward of the last micro batch is profiled, as in DeepSpeed. One thread.
#pragma once
#include <optional>
#include <unordered_map>
#include <vector>

#include "runtime/model/operators/operator_flops.hpp"
#include "runtime/state/module_info.hpp"
#include "runtime/telemetry/operator_scopes.hpp"
#include "runtime/telemetry/step_phases.hpp"
#include "runtime/telemetry/time_mark.hpp"

namespace dslaunch::runtime {

// The cost of one module itself, without its children.
struct ModuleCost {
  model::operators::OperatorCost own;
  double milliseconds = 0;  // of all its calls, children included; 0: never called
};

class FlopsProfiler final : public StepObserver {
 public:
  // `step`: the one to profile, counted from 1.
  FlopsProfiler(int64_t step, at::Device device) : step_(step), device_(device) {}
  ~FlopsProfiler() override;

  // The modules of the model, whose calls are attributed separately; the model itself comes first.
  void set_modules(const std::vector<ModuleInfo>& modules);

  void begin_step(int64_t step) override;
  void end_phase(StepPhase) override {}
  void end_step() override;

  // Costs by module, once the step is done; waits for the device.
  std::optional<std::vector<ModuleCost>> take();

  // For OperatorScopes.
  std::unique_ptr<at::ObserverContext> begin(const at::RecordFunction& call);
  void end(const at::RecordFunction& call, at::ObserverContext* context);

 private:
  struct Call;
  std::unique_ptr<at::ObserverContext> begin_module(const at::RecordFunction& call);
  std::unique_ptr<at::ObserverContext> begin_operator(const at::RecordFunction& call);
  void reset_costs();

  const int64_t step_;
  const at::Device device_;
  std::unordered_map<const void*, size_t> module_of_;  // by identity
  std::vector<ModuleCost> costs_;
  std::vector<size_t> open_;  // modules that are running, innermost last
  int open_costed_ = 0;       // operators with a formula that are running: their inner calls are counted with them
  struct Timed {
    size_t module;
    TimeMark begin, end;
  };
  std::vector<Timed> timed_;
  std::unique_ptr<OperatorScopes<FlopsProfiler>> scopes_;
  bool is_done_ = false;
};

}  // namespace dslaunch::runtime
