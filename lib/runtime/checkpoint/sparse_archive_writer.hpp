// A LibTorch zip archive whose tensor data is written later, so that all tensors are never in memory at once.
// LibTorch's serializers get tensors without memory of their own (zero pages of the kernel); the bytes written for such
// a tensor become a hole in the file. When the archive is complete, the holes are filled chunk by chunk and the
// checksums are corrected. One thread.
#pragma once
#include <ATen/core/Tensor.h>

#include <cstdint>
#include <exception>
#include <functional>
#include <string>
#include <vector>

#include "base/unique_fd.hpp"

namespace dslaunch::runtime {

class SparseArchiveWriter {
 public:
  // Creates or truncates. Throws SystemError(73).
  explicit SparseArchiveWriter(const std::string& path);
  ~SparseArchiveWriter();
  SparseArchiveWriter(const SparseArchiveWriter&) = delete;
  SparseArchiveWriter& operator=(const SparseArchiveWriter&) = delete;

  // A tensor that reads as zeros; write() recognizes its storage. `tag` is passed back in fill().
  at::Tensor add_placeholder(const std::vector<int64_t>& shape, at::ScalarType dtype, size_t tag);
  // Writes the next bytes of the archive. Always returns `size`, even when the write failed; rethrow() reports the
  // failure afterwards. Exceptions cannot pass through LibTorch's zip code, and a failure that is reported to LibTorch
  // is thrown again by its writer's destructor, which ends the process.
  size_t write(const void* data, size_t size);
  void rethrow() const;

  // Fills every hole: `values` calls its argument with the bytes of the tensor of that tag, front to back; then the
  // file is flushed to the device. Throws SystemError(74).
  using Put = std::function<void(const void* data, size_t size)>;
  void fill(const std::function<void(size_t tag, const Put& put)>& values);

 private:
  struct Region {
    const char* begin = nullptr;
    size_t size = 0, tag = 0;
  };
  struct Hole {
    uint64_t offset = 0;
    size_t size = 0, tag = 0;
    uint32_t crc = 0;
  };
  void write_at(uint64_t offset, const void* data, size_t size) const;
  void fill_hole(Hole& hole, const std::function<void(size_t tag, const Put& put)>& values) const;
  void correct_checksums() const;

  const std::string path_;
  UniqueFd fd_;
  uint64_t end_ = 0;
  std::vector<Region> regions_;
  std::vector<Hole> holes_;
  std::exception_ptr error_;
};

}  // namespace dslaunch::runtime
