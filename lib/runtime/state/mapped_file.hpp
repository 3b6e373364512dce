// A file mapped into memory: nothing is read before it is accessed, and all processes of a host share one page-cache
// copy. Size and address do not change after open(), so any thread may read. The file must not be truncated while it is
// mapped (the kernel then raises SIGBUS).
#pragma once
#include <ATen/core/Tensor.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

namespace dslaunch::runtime {

struct FaultRange;

class MappedFile {
 public:
  // `what` names the kind of file in messages: "data file", "checkpoint file". Throws UserError(66) when the file is
  // missing, unreadable or not a regular file. An empty file maps to size 0.
  static std::shared_ptr<const MappedFile> open(const std::string& path, const std::string& what);
  // The same with writable pages: a written page becomes private to this process, and writes never reach the file. For
  // tensors that are updated in place.
  static std::shared_ptr<const MappedFile> open_copy_on_write(const std::string& path, const std::string& what);
  ~MappedFile();
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;

  const uint8_t* data() const { return data_; }
  size_t size() const { return size_; }
  const std::string& path() const { return path_; }
  // As runtime::read_ahead(), of what the range has of the file.
  void read_ahead(size_t begin, size_t size) const;
  // Frees the memory of pages that were read; they are read from the file again on the next access. `begin`: a multiple
  // of the page size.
  void drop_pages(size_t begin, size_t size) const;
  void drop_pages() const { drop_pages(0, size_); }

 private:
  MappedFile() = default;
  static std::shared_ptr<const MappedFile> map(const std::string& path, const std::string& what, int protection);

  std::string path_;
  const uint8_t* data_ = nullptr;
  size_t size_ = 0;
  FaultRange* fault_range_ = nullptr;
};

// Begins to read mapped bytes without waiting for them, unless the first is in the page cache: a disk that reads many
// ranges at a time is faster than one that reads what is accessed.
void read_ahead(const uint8_t* begin, size_t bytes);
// Hands mapped bytes to `take` from front to back, in parts of 2 MiB, while those ahead are read.
using TakePart = std::function<void(std::span<const uint8_t> part)>;
void read_through(std::span<const uint8_t> bytes, const TakePart& take);

// From now on SIGBUS at an address inside a mapped file writes one line about that file to standard error; the signal
// then ends the process as before.
void report_mapped_file_faults();

// One mapping, for that report. `file`: what the line calls it: "data file 'train.npz'".
FaultRange* add_fault_range(const void* begin, size_t size, const std::string& file);
void remove_fault_range(FaultRange* range);

// A tensor over bytes of the mapping, which the tensor keeps alive; read-only. When the bytes are not aligned for the
// dtype, the tensor is a copy. The caller has checked that offset and size lie inside the file.
at::Tensor tensor_over(const std::shared_ptr<const MappedFile>& file, size_t offset, at::ScalarType dtype,
                       const std::vector<int64_t>& shape);

}  // namespace dslaunch::runtime
