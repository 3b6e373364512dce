// The values of a piece of state. The writer of a checkpoint reads them block by block, so state that lies in files or
// in host arenas is never copied to memory as a whole.
#pragma once
#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>

namespace dslaunch::runtime {

// The most bytes that the writer asks for at once.
inline constexpr int64_t kPieceBlockBytes = 8 << 20;

class PieceValues {
 public:
  // Returns elements [begin, begin + count) of the piece: 1-D, contiguous, CPU, of the piece's dtype; the result is
  // valid until the next call. A save calls it on its own thread, with blocks of at most kPieceBlockBytes, from front
  // to back, piece after piece as they are listed (those of wider elements first). What it throws is the error of the
  // save.
  using ReadBlock = std::function<at::Tensor(int64_t begin, int64_t count)>;

  // 1-D, contiguous, CPU; the values must not change while they are being saved.
  PieceValues(at::Tensor values);  // NOLINT(google-explicit-constructor): a tensor is the usual source of a piece
  PieceValues(int64_t numel, at::ScalarType dtype, ReadBlock read);

  int64_t numel() const { return numel_; }
  at::ScalarType dtype() const { return dtype_; }
  at::Tensor read(int64_t begin, int64_t count) const;
  // Passes all blocks to `take`, in order; once without elements for a piece that has none.
  void for_each_block(const std::function<void(const at::Tensor& block)>& take) const;

 private:
  int64_t numel_ = 0;
  at::ScalarType dtype_ = at::kFloat;
  ReadBlock read_;
};

}  // namespace dslaunch::runtime
