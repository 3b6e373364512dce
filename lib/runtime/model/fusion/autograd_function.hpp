// A region as a differentiable function of tensors: generated kernels on GPUs, the reference elsewhere and where a
// kernel cannot be made.
#pragma once
#include <ATen/core/Tensor.h>
#include <torch/custom_class.h>

#include <map>
#include <memory>
#include <mutex>
#include <vector>

#include "runtime/model/fusion/autodiff.hpp"
#include "runtime/model/fusion/executor.hpp"
#include "runtime/model/fusion/ir.hpp"

namespace dslaunch::runtime::model::fusion {

// A region for tensors of certain sizes. Any thread.
class RegionPlan : public torch::CustomClassHolder {
 public:
  struct Result {
    std::vector<int64_t> sizes, strides;
  };
  // `results`: by output. `leading`: of all of them. `passthrough`: inputs of as many rows and columns as they have
  // that are results as well, so that backward adds the gradients of their further use. `offered`: outputs that readers
  // need not keep for their backward, if kept() can compute them again. `services`: null: not on a GPU.
  RegionPlan(Region forward, std::vector<int64_t> leading, std::vector<Result> results,
             std::vector<size_t> passthrough = {}, std::vector<size_t> offered = {},
             const FusionServicesPtr& services = {});
  // The same region for tensors of other sizes, as far as the IR does not know them. Shares what was derived and
  // compiled.
  RegionPlan(const RegionPlan& other, std::vector<int64_t> leading, std::vector<Result> results);

  const Region& forward() const { return derived_->forward.region(); }
  const std::vector<int64_t>& leading() const { return leading_; }
  const std::vector<size_t>& passthrough() const { return passthrough_; }
  bool offers() const { return !offered_.empty(); }
  size_t num_results() const { return results_.size() + passthrough_.size(); }

  struct BackwardPlan {
    Backward backward, followed;  // by autograd: for gradients of gradients
    FusionExecutor kernel;
  };
  // For these wanted gradients and given gradients of the results; derived once.
  BackwardPlan& backward(const std::vector<bool>& wanted, const std::vector<bool>& given);

  struct RecomputationPlan {
    Recomputation recomputation, followed;
    FusionExecutor kernel;
  };
  struct Kept {
    // Inputs and outputs: those that the backward of all results reads, which is enough for that of some of them, and
    // what the recomputations read beside them.
    std::vector<BackwardSource> sources;
    std::map<size_t, std::unique_ptr<RecomputationPlan>> recomputations;  // by output: of those on offer
  };
  // Between forward and backward, for these wanted gradients; derived once. `may_be_kept`: by input, whether a
  // recomputation may read it although backward does not.
  const Kept& kept(const std::vector<bool>& wanted, const std::vector<bool>& may_be_kept);

  // Begins to compile the kernels for inputs that lie as these, which need no data, and for their backward.
  void prepare(const std::vector<at::Tensor>& inputs, const std::vector<bool>& wanted, const at::Tensor& like);

  std::vector<at::Tensor> run_forward(const std::vector<at::Tensor>& inputs);
  std::vector<at::Tensor> run_backward(BackwardPlan& plan, const std::vector<at::Tensor>& sources) const;
  at::Tensor run_recomputation(size_t output, RecomputationPlan& plan, const std::vector<at::Tensor>& sources) const;

 private:
  at::Tensor empty_output(size_t output, const at::TensorOptions& options) const;
  std::vector<at::Tensor> empty_outputs(const at::TensorOptions& options) const;
  std::vector<at::Tensor> empty_gradients(const BackwardPlan& plan, const std::vector<at::Tensor>& sources) const;

  // For all sizes.
  struct Derived {
    Derived(Region region, const FusionServicesPtr& of_all) : services(of_all), forward(std::move(region), of_all) {}

    const FusionServicesPtr services;
    FusionExecutor forward;
    std::mutex mutex;
    std::map<std::vector<bool>, std::unique_ptr<BackwardPlan>> backward;  // guarded, like the next
    std::map<std::vector<bool>, Kept> kept;
  };

  const std::shared_ptr<Derived> derived_;
  const std::vector<int64_t> leading_;
  const std::vector<Result> results_;
  const std::vector<size_t> passthrough_, offered_;
};

// The outputs, then the inputs that are passed through; differentiable, also twice. `inputs` have the dtypes and sizes
// that the plan was made for.
std::vector<at::Tensor> run_region(const c10::intrusive_ptr<RegionPlan>& plan, const std::vector<at::Tensor>& inputs);

}  // namespace dslaunch::runtime::model::fusion
