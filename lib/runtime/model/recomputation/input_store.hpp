// Storage for the saved inputs of recomputed units until backward: in place, in host memory (cpu_checkpointing), or in
// one buffer that is allocated once (contiguous_memory_optimization). All copies are ordered by the current stream.
#pragma once
#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>

namespace dslaunch::runtime::model::recomputation {

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

  InputStore(bool on_host, bool in_one_buffer) : on_host_(on_host), in_one_buffer_(in_one_buffer) {}

  // `is_activation`: no other holder of the tensor is known, so moving it away frees memory.
  std::unique_ptr<Stored> save(const at::Tensor& tensor, bool is_activation);

  int64_t buffer_bytes() const { return buffer_.defined() ? buffer_.numel() : 0; }

 private:
  class Piece;
  class Alias;
  class Copy;

  // Space for the tensor in the buffer; undefined while the buffer is too small.
  at::Tensor allocate_in_buffer(const at::Tensor& tensor);

  // fixed after construction
  bool on_host_, in_one_buffer_;
  // the thread that runs the model, or autograd's thread while the model's thread waits
  at::Tensor buffer_;          // uint8; on the host for a device, pinned if possible
  int64_t used_bytes_ = 0;     // of the buffer, used or requested since it was last empty
  int64_t largest_bytes_ = 0;  // the most ever requested at one time
  int64_t num_pieces_ = 0;     // live pieces that were meant for the buffer
};

}  // namespace dslaunch::runtime::model::recomputation
