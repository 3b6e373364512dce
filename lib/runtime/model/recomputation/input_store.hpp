// Storage for the saved inputs of recomputed units until backward: in place, in host memory (cpu_checkpointing), or in
// one buffer that is allocated once (contiguous_memory_optimization); of tensor ranks each may keep its part alone
// (partition_activations). All copies are ordered by the current stream.
#pragma once
#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <utility>

namespace dslaunch::runtime::model::recomputation {

// Ranks that save the same inputs, and read them in the same order.
struct InputRanks {
  int rank = 0, size = 1;
  std::function<at::Tensor(const at::Tensor& own)> stack = {};  // [size, ...] of the tensors of all; collective
};

class InputStore : public std::enable_shared_from_this<InputStore> {
 public:
  // A saved tensor; its destructor frees its space.
  class Stored {
   public:
    virtual ~Stored() = default;
    // The tensor's values on its own device, without history.
    virtual at::Tensor get() const = 0;
    // False: the tensor has been changed in place since, and its values are lost. Copies always stay intact.
    virtual bool is_intact() const { return true; }
  };

  // Of more than one of `ranks` each keeps its part of an input.
  InputStore(bool on_host, bool in_one_buffer, InputRanks ranks = {})
      : on_host_(on_host), in_one_buffer_(in_one_buffer), ranks_(std::move(ranks)) {}

  // `is_activation`: no other holder of the tensor is known, so moving it away frees memory.
  std::unique_ptr<Stored> save(const at::Tensor& tensor, bool is_activation);

  int64_t buffer_bytes() const { return buffer_.defined() ? buffer_.numel() : 0; }

 private:
  class Piece;
  class Alias;
  class Copy;
  class Part;

  std::unique_ptr<Stored> keep(const at::Tensor& tensor, bool is_activation);

  // Space for the tensor in the buffer; undefined while the buffer is too small.
  at::Tensor allocate_in_buffer(const at::Tensor& tensor);

  // fixed after construction
  const bool on_host_, in_one_buffer_;
  const InputRanks ranks_;
  // the thread that runs the model, or autograd's thread while the model's thread waits
  at::Tensor buffer_;          // uint8; on the host for a device, pinned if possible
  int64_t used_bytes_ = 0;     // of the buffer, used or requested since it was last empty
  int64_t largest_bytes_ = 0;  // the most ever requested at one time
  int64_t num_pieces_ = 0;     // live pieces that were meant for the buffer
};

}  // namespace dslaunch::runtime::model::recomputation
