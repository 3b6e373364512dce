#include "runtime/checkpoint/sparse_archive_writer.hpp"

#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>
#include <zlib.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <span>

#include "base/error.hpp"
#include "base/format.hpp"
#include "base/writable_directory.hpp"
#include "runtime/state/mapped_file.hpp"
#include "runtime/state/zip_members.hpp"

namespace dslaunch::runtime {
namespace {

constexpr uint32_t kDescriptorMark = 0x08074b50;  // after a member's bytes: mark, CRC, sizes
constexpr uint64_t kCrcInDescriptor = 4, kCrcInEntry = 16;

}  // namespace

SparseArchiveWriter::SparseArchiveWriter(const std::string& path)
    : path_(path), fd_(::open(path.c_str(), O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0666)) {
  if (!fd_.valid()) throw SystemError("create", "'" + path + "'", errno, ExitCode::kCannotCreate);
}

SparseArchiveWriter::~SparseArchiveWriter() = default;

at::Tensor SparseArchiveWriter::add_placeholder(const std::vector<int64_t>& shape, at::ScalarType dtype, size_t tag) {
  size_t size = c10::elementSize(dtype);
  for (int64_t extent : shape) size *= static_cast<size_t>(extent);
  if (size == 0) return at::empty(shape, dtype);
  // Reading maps the kernel's zero page, which takes no memory.
  void* region = ::mmap(nullptr, size, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (region == MAP_FAILED) throw SystemError("mmap", fmt::format("{} bytes", size), errno, ExitCode::kUnavailable);
  regions_.push_back({static_cast<const char*>(region), size, tag});
  return at::from_blob(
      region, shape, [size](void* data) { ::munmap(data, size); }, at::TensorOptions().dtype(dtype));
}

size_t SparseArchiveWriter::write(const void* data, size_t size) {
  const uint64_t offset = end_;
  end_ += size;
  if (error_) return size;
  const auto* begin = static_cast<const char*>(data);
  const auto region = std::find_if(regions_.begin(), regions_.end(), [&](const auto& r) { return r.begin == begin; });
  try {
    if (region != regions_.end() && size == region->size) {
      holes_.push_back({offset, size, region->tag, 0});
    } else {
      write_at(offset, data, size);
    }
  } catch (...) {
    error_ = std::current_exception();
  }
  return size;
}

void SparseArchiveWriter::rethrow() const {
  if (error_) std::rethrow_exception(error_);
}

void SparseArchiveWriter::write_at(uint64_t offset, const void* data, size_t size) const {
  const auto* bytes = static_cast<const char*>(data);
  while (size > 0) {
    const ssize_t written = ::pwrite(fd_.get(), bytes, size, static_cast<off_t>(offset));
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) {
      const int error = written < 0 ? errno : ENOSPC;
      throw SystemError("write", written_object(path_, size, error), error);
    }
    bytes += written;
    offset += static_cast<uint64_t>(written);
    size -= static_cast<size_t>(written);
  }
}

void SparseArchiveWriter::fill_hole(Hole& hole, const std::function<void(size_t tag, const Put& put)>& values) const {
  uint64_t offset = hole.offset;
  uLong crc = ::crc32_z(0, nullptr, 0);
  values(hole.tag, [&](const void* data, size_t size) {
    DSL_CHECK(offset + size <= hole.offset + hole.size, "more bytes than the archive has room for");
    write_at(offset, data, size);
    crc = ::crc32_z(crc, static_cast<const Bytef*>(data), size);
    offset += size;
  });
  DSL_CHECK(offset == hole.offset + hole.size, "fewer bytes than the archive has room for");
  hole.crc = static_cast<uint32_t>(crc);
}

void SparseArchiveWriter::fill(const std::function<void(size_t tag, const Put& put)>& values) {
  for (auto& hole : holes_) fill_hole(hole, values);
  correct_checksums();
  if (::fsync(fd_.get()) != 0) throw SystemError("fsync", "'" + path_ + "'");
}

// LibTorch's archives store a member's CRC after its bytes and in the central directory.
void SparseArchiveWriter::correct_checksums() const {
  if (holes_.empty()) return;
  std::map<uint64_t, const Hole*> by_offset;
  for (const auto& hole : holes_) by_offset[hole.offset] = &hole;
  const auto file = MappedFile::open(path_, "archive");
  const std::span<const uint8_t> archive(file->data(), file->size());
  size_t num_corrected = 0;
  for (const auto& member : read_zip_members(archive, fmt::format("archive '{}'", path_))) {
    const auto hole = by_offset.find(static_cast<uint64_t>(member.bytes.data() - archive.data()));
    if (hole == by_offset.end() || member.size == 0) continue;
    const uint64_t descriptor = hole->first + member.size;
    uint32_t mark = 0;
    DSL_CHECK(descriptor + kCrcInDescriptor + sizeof mark <= archive.size(), "an archive without an end");
    std::memcpy(&mark, archive.data() + descriptor, sizeof mark);
    DSL_CHECK(mark == kDescriptorMark, "an archive of another kind");
    for (const uint64_t at : {descriptor + kCrcInDescriptor, member.entry_at + kCrcInEntry}) {
      write_at(at, &hole->second->crc, sizeof hole->second->crc);
    }
    ++num_corrected;
  }
  DSL_CHECK(num_corrected == holes_.size(), "a hole that is not a member of the archive");
}

}  // namespace dslaunch::runtime
