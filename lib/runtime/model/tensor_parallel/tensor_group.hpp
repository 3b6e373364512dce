// The ranks that share the GEMMs of a model, as the graphs of the model hold them: nodes of a graph keep the group,
// and the group gets its communicator once the job has one. Collectives run on the thread that runs the model, and on
// autograd's thread in backward, never on both at a time; all ranks of the group run the same graphs, so they issue the
// same sequence. On a device they are enqueued on the current stream.
#pragma once
#include <ATen/core/Tensor.h>
#include <torch/custom_class.h>

#include <cstdint>
#include <exception>
#include <functional>
#include <optional>
#include <vector>

#include "comm/communicator.hpp"
#include "runtime/state/index_range.hpp"
#include "runtime/state/step_streams.hpp"

namespace dslaunch::runtime::model::tensor_parallel {

// By rank: the ranges of a dim of the whole tensor that the rank has, back to back in its part.
using Layout = std::vector<std::vector<Range>>;

class TensorGroup : public torch::CustomClassHolder {
 public:
  TensorGroup(int rank, int size) : rank_(rank), size_(size) {}

  int rank() const { return rank_; }
  int size() const { return size_; }
  // Of this group's ranks, in their order; must outlive all runs of the model.
  void set_communicator(comm::Communicator& communicator);

  // The sum over the ranks, the same bits on all of them. A new tensor.
  virtual at::Tensor all_reduce(const at::Tensor& tensor);
  // The same in place of a tensor that nothing else reads; returns it, or a new one where it cannot be written to.
  at::Tensor sum_in_place(const at::Tensor& tensor);
  // The rank's positions of the sum over the ranks, along `dim`. A new tensor.
  virtual at::Tensor reduce_scatter(const at::Tensor& tensor, int64_t dim);
  // From now on backward sums gradients of whole values beside other work: on the device in a stream of its own, in
  // host memory before it.
  void overlap(at::Device device);
  bool overlaps() const { return streams_.has_value(); }
  struct Started {
    at::Tensor tensor;  // valid for work that is enqueued after wait()
    StreamMark end = {};
  };
  // `collective` of this group; requires overlaps().
  Started start(const std::function<at::Tensor()>& collective);
  void wait(const Started& started) const { streams_->wait(started.end); }

  // The whole tensor of which each rank has its part along `dim`.
  at::Tensor all_gather(const at::Tensor& part, int64_t dim, const Layout& layout);
  // [ranks, ...]: the tensors of all ranks, which have one shape.
  virtual at::Tensor stacked(const at::Tensor& tensor);

  // The host waits until `is_reached`, or for all that is enqueued; throws what ends the ranks meanwhile.
  void wait_until(const std::function<bool()>& is_reached);
  void wait_for_completion();

  // After a run of a graph has thrown: rethrows the error of a collective that has ended it, which TorchScript's
  // interpreter replaces by one of its own.
  void throw_failure();

 private:
  template <class Collective>
  void communicate(const Collective& collective);

  const int rank_, size_;
  comm::Communicator* communicator_ = nullptr;
  std::optional<StepStreams> streams_;
  std::exception_ptr failure_;  // the first since throw_failure()
};

using TensorGroupPtr = c10::intrusive_ptr<TensorGroup>;

// A rank's part of a whole tensor: a view where it is one range.
at::Tensor part_of(const at::Tensor& whole, int64_t dim, const std::vector<Range>& ranges);
int64_t length_of(const std::vector<Range>& ranges);
int64_t longest_of(const Layout& layout);  // of the ranks' parts
int64_t whole_length_of(const Layout& layout);
// Of a dim that the ranks share in turn: the first ones have one more where its length is not a multiple of them.
Range own_positions(int64_t length, const TensorGroup& group);
Layout layout_of_positions(int64_t length, int ranks);

// Of indices of the whole dim.
struct LocalIndices {
  at::Tensor positions;  // in the rank's part; 0 where the rank does not have the index
  at::Tensor is_own;
};
LocalIndices local_indices(const at::Tensor& indices, const std::vector<Range>& own);

}  // namespace dslaunch::runtime::model::tensor_parallel
