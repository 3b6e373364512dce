// One striped file of state past the page cache. What is moved in bulk goes from and to buffers of the caller, in whole
// pages, while the caller does something else. Ranges of any begin and length go through two small blocks of memory; of
// those that follow each other, the next one is read while the caller uses the last.
#pragma once
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "file_io/aligned_buffer.hpp"
#include "file_io/file_engine.hpp"
#include "file_io/striped_file.hpp"

namespace dslaunch::runtime::offload {

// Rounded up, and down, to whole pages of O_DIRECT.
int64_t pages(int64_t bytes);
int64_t page_before(int64_t offset);

struct PagedFileOptions {
  std::vector<std::string> directories;
  std::string directory_key;                          // of the config, for messages; empty: --nvme_path alone
  std::string content = "offloaded optimizer state";  // for messages
  int64_t block_size = 1 << 20;
  int queue_depth = 8;
  int num_threads = 1;
  std::function<std::unique_ptr<file_io::BlockQueue>(std::unique_ptr<file_io::BlockQueue>)> wrap_queue;  // for tests
};

class PagedFile {
 public:
  using Ticket = file_io::FileEngine::Ticket;

  // Takes `bytes` of space. `buffers`: what bulk transfers use; they must outlive this object, and the file waits for
  // transfers in flight when it goes. Throws SystemError as file_io::StripedFile does, with the option that sets
  // another directory.
  PagedFile(const PagedFileOptions& options, int64_t bytes, std::vector<std::span<std::byte>> buffers);
  PagedFile(const PagedFile&) = delete;
  PagedFile& operator=(const PagedFile&) = delete;

  // Host memory that ranges of a file of so many bytes go through.
  static int64_t memory(int64_t bytes);

  // Ranges. Zeros before the first write. `next`: the range that will probably be read after this one begins there.
  // Throw Error (74) with the directory, offset and the system's reason. Any thread.
  void read(int64_t offset, std::span<std::byte> into, std::optional<int64_t> next = {});
  void write(int64_t offset, std::span<const std::byte> from);

  // Bulk, from a page on; a range that is being read or written must not be touched otherwise before its wait(), which
  // throws as above, once for each ticket. Any thread.
  Ticket begin_read(int64_t offset, std::span<std::byte> into) { return engine_.read(file_, offset, into); }
  Ticket begin_write(int64_t offset, std::span<const std::byte> from);
  void wait(Ticket ticket) { engine_.wait(ticket); }

 private:
  struct Ahead {
    int64_t offset = 0, bytes = 0;
    Ticket ticket = 0;
  };

  int64_t block_bytes() const { return static_cast<int64_t>(blocks_[0].bytes().size()); }
  // The first `bytes` from `offset` on, in one of the blocks.
  std::span<std::byte> fetch(int64_t offset, int64_t bytes);
  void read_ahead(int64_t offset, int64_t bytes);
  void drop_ahead();
  void read_pages(int64_t offset, std::span<std::byte> into) { engine_.wait(engine_.read(file_, offset, into)); }

  file_io::StripedFile file_;
  file_io::AlignedBuffer blocks_[2];  // guarded by mutex_, as all below but the engine
  std::mutex mutex_;
  int current_ = 0;             // the block that was fetched last
  std::optional<Ahead> ahead_;  // into the other block
  file_io::FileEngine engine_;  // last: it uses the blocks until it is gone
};

}  // namespace dslaunch::runtime::offload
