#include "runtime/state/mapped_file.hpp"

#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>

#include "base/error.hpp"
#include "base/format.hpp"
#include "base/input_file.hpp"
#include "runtime/state/tensor_extent.hpp"

namespace dslaunch::runtime {

std::shared_ptr<const MappedFile> MappedFile::open(const std::string& path, const std::string& what) {
  return map(path, what, PROT_READ);
}

std::shared_ptr<const MappedFile> MappedFile::open_copy_on_write(const std::string& path, const std::string& what) {
  return map(path, what, PROT_READ | PROT_WRITE);
}

std::shared_ptr<const MappedFile> MappedFile::map(const std::string& path, const std::string& what, int protection) {
  const UniqueFd fd = open_input_file(path, what);
  struct stat status {};
  if (::fstat(fd.get(), &status) != 0) throw SystemError("fstat", path, errno);
  std::shared_ptr<MappedFile> file(new MappedFile);
  file->path_ = path;
  file->size_ = static_cast<size_t>(status.st_size);
  if (file->size_ == 0) return file;
  void* data = ::mmap(nullptr, file->size_, protection, MAP_PRIVATE, fd.get(), 0);
  if (data == MAP_FAILED) {
    const int error = errno;
    file->size_ = 0;
    const char* limits = error == ENOMEM ? " (check the process's limits: memory, ulimit -v; mapped files, the "
                                           "kernel's vm.max_map_count: merge small files into larger ones)"
                                         : "";
    throw UserError(ExitCode::kNoInput,
                    fmt::format("cannot map {} '{}': {}{}", what, path, describe_errno(error), limits));
  }
  file->data_ = static_cast<const uint8_t*>(data);
  file->fault_range_ = add_fault_range(data, file->size_, fmt::format("{} '{}'", what, path));
  return file;
}

MappedFile::~MappedFile() {
  if (fault_range_ != nullptr) remove_fault_range(fault_range_);
  if (data_) ::munmap(const_cast<uint8_t*>(data_), size_);
}

void MappedFile::read_ahead(size_t begin, size_t size) const {
  if (data_ && begin < size_) runtime::read_ahead(data_ + begin, std::min(size, size_ - begin));
}

void read_ahead(const uint8_t* begin, size_t bytes) {
  static const auto page = static_cast<uintptr_t>(::sysconf(_SC_PAGESIZE));
  if (bytes == 0) return;
  const uintptr_t skipped = reinterpret_cast<uintptr_t>(begin) % page;
  auto* first = const_cast<uint8_t*>(begin) - skipped;
  unsigned char is_cached = 0;
  if (::mincore(first, page, &is_cached) == 0 && (is_cached & 1) != 0) return;
  ::madvise(first, bytes + skipped, MADV_WILLNEED);
}

void MappedFile::drop_pages(size_t begin, size_t size) const {
  if (data_ && begin < size_)
    ::madvise(const_cast<uint8_t*>(data_) + begin, std::min(size, size_ - begin), MADV_DONTNEED);
}

void read_through(std::span<const uint8_t> bytes, const TakePart& take) {
  constexpr size_t kPart = 2 << 20, kAhead = 64 << 20;
  const auto part_at = [&](size_t at) {
    return at < bytes.size() ? bytes.subspan(at, std::min(kPart, bytes.size() - at)) : std::span<const uint8_t>();
  };
  for (size_t at = 0; at < kAhead; at += kPart) read_ahead(part_at(at).data(), part_at(at).size());
  for (size_t at = 0; at < bytes.size(); at += kPart) {
    read_ahead(part_at(at + kAhead).data(), part_at(at + kAhead).size());
    take(part_at(at));
  }
}

at::Tensor tensor_over(const std::shared_ptr<const MappedFile>& file, size_t offset, at::ScalarType dtype,
                       const std::vector<int64_t>& shape) {
  const uint8_t* bytes = file->data() + offset;
  const auto options = at::TensorOptions().dtype(dtype);
  const auto num_bytes = num_bytes_of(shape, dtype);
  DSL_CHECK(num_bytes, fmt::format("a tensor of an impossible shape over '{}'", file->path()));
  const size_t item_bytes = c10::elementSize(dtype);
  if (*num_bytes > 0 && reinterpret_cast<uintptr_t>(bytes) % item_bytes == 0) {
    return at::from_blob(
        const_cast<uint8_t*>(bytes), shape, [file](void*) {}, options);
  }
  at::Tensor copy = at::empty(shape, options);
  if (*num_bytes > 0) std::memcpy(copy.mutable_data_ptr(), bytes, static_cast<size_t>(*num_bytes));
  return copy;
}

}  // namespace dslaunch::runtime
