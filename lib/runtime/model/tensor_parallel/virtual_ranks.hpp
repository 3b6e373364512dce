// A tensor group whose ranks are threads of this process, on CPU tensors: a split model runs before a job exists.
#pragma once
#include <functional>
#include <memory>
#include <vector>

#include "runtime/model/tensor_parallel/tensor_group.hpp"

namespace dslaunch::runtime::model::tensor_parallel {

class VirtualRanks {
 public:
  explicit VirtualRanks(int ranks);
  ~VirtualRanks();

  const TensorGroupPtr& group(int rank) const { return groups_.at(static_cast<size_t>(rank)); }
  // `body` on each rank at the same time. When one throws, the collectives of the others throw PeerError, and its error
  // is thrown here; these ranks cannot run again.
  void run(const std::function<void(int rank)>& body);

  class Meeting;  // of the ranks in a collective

 private:
  const std::shared_ptr<Meeting> meeting_;
  std::vector<TensorGroupPtr> groups_;
};

}  // namespace dslaunch::runtime::model::tensor_parallel
