// --verify N: runs the first steps of a run beside an unsharded replica (replica.hpp). Both sides start every step from
// the run's own state, so the bound is that of one step and does not grow with their number; docs/verify.md describes
// what is compared and how closely. All ranks take part: rank 0 has the replica and compares masters and moments, then
// every rank compares the parameters that its forward will read, bit by bit. Of a pipeline, rank 0 has the whole model
// for that, and every rank compares those of its stage. One thread.
#pragma once
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/result.hpp"
#include "comm/groups.hpp"
#include "rendezvous/store.hpp"
#include "runtime/engine/step/engine.hpp"
#include "runtime/engine/verify/replica.hpp"
#include "runtime/engine/verify/state_comparison.hpp"
#include "runtime/engine/verify/verification_bounds.hpp"

namespace dslaunch::runtime::engine::verify {

// Throws UserError(65) for a model that draws random numbers on parts of values, which no unsharded replica can.
void require_same_draws(const model::ModelFacts& model);

class Verification {
 public:
  // The engine of `run` is at the step where training starts or resumes. Throws on all ranks: UserError(69) with the
  // numbers when the replica does not fit in memory beside the run, UserError(76) when a fresh start already differs.
  Verification(step::Engine& engine, ReplicatedRun run, const comm::Groups& groups, rendezvous::Store& store,
               bool is_resumed);

  // Call after a step of the run and before the next one. Throws UserError(76) on all ranks, naming the first parameter
  // that differs, in model order.
  void compare(const step::StepResult& run);

  // "verify: 20 steps agree with an unsharded replica (...)"
  std::string report() const;
  int64_t steps_compared() const { return steps_compared_; }

 private:
  void require_memory(const ReplicatedRun& run);
  void open_replica(ReplicatedRun run, rendezvous::Store& store);
  bool overflows_apart(const step::StepResult& run, const step::StepResult& replica);
  std::vector<std::string> compare_numbers(const step::StepResult& run, const step::StepResult& replica);
  Result<> compare_unit(int unit, const std::vector<at::Tensor>& own);
  Result<> compare_stage();
  Result<> compare_copy(int parameter, const at::Tensor& own, const at::Tensor& whole) const;
  void share(const at::Tensor& values);
  void share_held();
  at::Tensor whole_of(const ParameterInfo& info, const at::Tensor& value) const;
  at::Tensor empty_like_held(const std::string& name) const;
  void receive_held(const std::vector<std::pair<std::string, at::Tensor>>& own);
  void share_frozen();
  void compare_copies(int64_t step);
  void agree(int64_t step, const Result<>& own);

  // fixed after construction
  step::Engine& engine_;
  const model::Model& model_;
  const comm::Groups groups_;
  comm::Communicator& world_;
  const at::Device device_;
  const precision::ModelDtypes dtypes_;
  const VerificationBounds bounds_;
  std::unique_ptr<comm::Communicator> single_rank_group_;
  std::unique_ptr<Replica> replica_;  // on rank 0
  StateComparison state_;
  // results
  int64_t steps_compared_ = 0;
  double largest_loss_error_ = 0, largest_norm_error_ = 0;  // relative
};

}  // namespace dslaunch::runtime::engine::verify
