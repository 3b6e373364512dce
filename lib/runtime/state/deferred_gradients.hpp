// Weight gradients that a backward leaves for later: in a pipeline, the stage before waits for the gradients of the
// inputs only (runtime/pipeline, zb-h1). Collects those of one micro batch at a time; who runs the work keeps what it
// returns.
//
// open() and close() on the engine's thread; is_open() and add() also on autograd's, during a backward between the two.
#pragma once
#include <functional>
#include <utility>
#include <vector>

namespace dslaunch::runtime {

class DeferredGradients {
 public:
  // Computes the weight gradients of one call of a unit and hands over all gradients of that call. On the engine's
  // thread, once, without gradient mode. Holds the memory that it needs until it is destroyed.
  using Work = std::function<void()>;

  // From now on a backward may leave work.
  void open() {
    work_.clear();
    is_open_ = true;
  }
  // The work that was left since open(), in the order of the backward.
  std::vector<Work> close() {
    is_open_ = false;
    return std::exchange(work_, {});
  }
  bool is_open() const { return is_open_; }
  void add(Work work) { work_.push_back(std::move(work)); }

 private:
  bool is_open_ = false;
  std::vector<Work> work_;
};

}  // namespace dslaunch::runtime
