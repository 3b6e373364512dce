#include "runtime/offload/paged_file.hpp"

#include <algorithm>
#include <cstring>
#include <utility>

#include "base/error.hpp"
#include "base/format.hpp"

namespace dslaunch::runtime::offload {
namespace {

using file_io::kDirectAlignment;

// Of ranges: blocks of a checkpoint, which need not begin with a page.
constexpr int64_t kBlockBytes = (8 << 20) + kDirectAlignment;

file_io::StripedFileOptions file_options(const PagedFileOptions& options, int64_t bytes) {
  return {.directories = options.directories, .bytes = bytes, .stripe_bytes = options.block_size};
}

file_io::StripedFile open_file(const PagedFileOptions& options, int64_t bytes) try {
  return file_io::StripedFile(file_options(options, bytes));
} catch (const SystemError& error) {
  const std::string key = options.directory_key.empty() ? "" : fmt::format("--set {}=DIR, or ", options.directory_key);
  throw Error(error.code(), fmt::format("{}. It is for {}; another directory: {}--nvme_path DIR", error.what(),
                                        options.content, key));
}

file_io::EngineOptions engine_options(const PagedFileOptions& options, std::vector<std::span<std::byte>> buffers) {
  file_io::EngineOptions out;
  out.block_size = options.block_size;
  out.queue_depth = options.queue_depth;
  out.num_threads = options.num_threads;
  out.buffers = std::move(buffers);
  std::erase_if(out.buffers, [](const auto& buffer) { return buffer.empty(); });
  out.wrap_queue = options.wrap_queue;
  return out;
}

int64_t ranges_block(int64_t bytes) {
  return std::min(kBlockBytes, pages(bytes));
}

}  // namespace

int64_t pages(int64_t bytes) {
  return (bytes + kDirectAlignment - 1) / kDirectAlignment * kDirectAlignment;
}

int64_t page_before(int64_t offset) {
  return offset / kDirectAlignment * kDirectAlignment;
}

int64_t PagedFile::memory(int64_t bytes) {
  return 2 * ranges_block(bytes);
}

PagedFile::PagedFile(const PagedFileOptions& options, int64_t bytes, std::vector<std::span<std::byte>> buffers)
    : file_(open_file(options, bytes)),
      blocks_{file_io::AlignedBuffer(ranges_block(bytes)), file_io::AlignedBuffer(ranges_block(bytes))},
      engine_([&] {
        for (const auto& block : blocks_) buffers.push_back(block.bytes());
        return engine_options(options, std::move(buffers));
      }()) {}

// Whole pages, through a block: the page cache, which a direct read would have to empty first, never has any of the
// file.
void PagedFile::read(int64_t offset, std::span<std::byte> into, std::optional<int64_t> next) {
  const std::lock_guard lock(mutex_);
  const auto size = static_cast<int64_t>(into.size());
  while (!into.empty()) {
    const int64_t first = page_before(offset), lead = offset - first;
    const int64_t bytes = std::min(block_bytes(), pages(lead + static_cast<int64_t>(into.size())));
    const auto block = fetch(first, bytes);
    const auto count = std::min(into.size(), static_cast<size_t>(bytes - lead));
    const auto left = static_cast<int64_t>(into.size() - count);
    if (left > 0) {
      read_ahead(offset + static_cast<int64_t>(count), left);
    } else if (next) {
      read_ahead(*next, size);
    }
    std::memcpy(into.data(), block.data() + lead, count);
    into = into.subspan(count);
    offset += static_cast<int64_t>(count);
  }
}

// The first and the last page may hold neighbours.
void PagedFile::write(int64_t offset, std::span<const std::byte> from) {
  const std::lock_guard lock(mutex_);
  drop_ahead();
  const auto whole = blocks_[0].bytes();
  while (!from.empty()) {
    const int64_t first = page_before(offset), lead = offset - first;
    const int64_t bytes = std::min(block_bytes(), pages(lead + static_cast<int64_t>(from.size())));
    const auto count = std::min(from.size(), static_cast<size_t>(bytes - lead));
    const int64_t end = lead + static_cast<int64_t>(count);
    const auto page = [&](int64_t begin) {
      return whole.subspan(static_cast<size_t>(begin), static_cast<size_t>(kDirectAlignment));
    };
    const int64_t last = bytes - kDirectAlignment;
    if (lead > 0) read_pages(first, page(0));
    if (end < bytes && (last > 0 || lead == 0)) read_pages(first + last, page(last));
    std::memcpy(whole.data() + lead, from.data(), count);
    engine_.wait(engine_.write(file_, first, whole.first(static_cast<size_t>(bytes))));
    from = from.subspan(count);
    offset += static_cast<int64_t>(count);
  }
}

PagedFile::Ticket PagedFile::begin_write(int64_t offset, std::span<const std::byte> from) {
  {
    const std::lock_guard lock(mutex_);
    drop_ahead();
  }
  return engine_.write(file_, offset, from);
}

std::span<std::byte> PagedFile::fetch(int64_t offset, int64_t bytes) {
  if (ahead_ && ahead_->offset <= offset && offset + bytes <= ahead_->offset + ahead_->bytes) {
    const Ahead ahead = *std::exchange(ahead_, {});
    engine_.wait(ahead.ticket);
    current_ = 1 - current_;
    return blocks_[current_].bytes().subspan(static_cast<size_t>(offset - ahead.offset), static_cast<size_t>(bytes));
  }
  drop_ahead();
  const auto block = blocks_[current_].bytes().first(static_cast<size_t>(bytes));
  read_pages(offset, block);
  return block;
}

void PagedFile::read_ahead(int64_t offset, int64_t bytes) {
  const int64_t first = page_before(offset);
  const int64_t most = std::min(block_bytes(), file_.bytes() - first);
  const auto into =
      blocks_[1 - current_].bytes().first(static_cast<size_t>(std::min(most, pages(offset - first + bytes))));
  ahead_ = {first, static_cast<int64_t>(into.size()), engine_.read(file_, first, into)};
}

// Whoever reads the range gets the error of a read that failed.
void PagedFile::drop_ahead() {
  if (!ahead_) return;
  try {
    engine_.wait(std::exchange(ahead_, {})->ticket);
  } catch (const Error&) {  // NOLINT(bugprone-empty-catch)
  }
}

}  // namespace dslaunch::runtime::offload
