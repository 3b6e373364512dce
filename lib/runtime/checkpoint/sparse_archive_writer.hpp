// A zip archive of LibTorch whose tensors' bytes come later, so that they never are in memory together. LibTorch's
// serializers get tensors without memory behind them (zero pages of the kernel); what they write of such a tensor
// becomes a hole in the file. When the archive is complete the holes are filled chunk by chunk, and the checksums put
// right. One thread.
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

  // A tensor that reads as zeros; its storage is recognised when write() sees it. `tag` comes back in fill().
  at::Tensor add_hollow(const std::vector<int64_t>& shape, at::ScalarType dtype, size_t tag);
  // The next bytes of the archive; always their number, also when they could not be written, which rethrow() tells
  // afterwards: LibTorch's zip code cannot be thrown through, and what it is told of a failure its writer's destructor
  // throws again, which ends the process.
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
