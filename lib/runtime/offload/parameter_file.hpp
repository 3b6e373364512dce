// The parameters of a rank in files, between their uses: one striped file with this rank's slice of each flat group, in
// the compute dtype. Each span of a slice begins with a page, so that updates write whole pages; a slice lies together,
// so that one read brings it.
//
//   file   [slice of group 0: span | span] [slice of group 3: span] ...
//              |
//              +--> read ahead into buffers --> copied to the device where the unit is gathered
//              ^--- written from the blocks of an update
//
// Buffers of up to `buffer_numel` elements, page-locked for a device, hold what was read ahead; a slice that is larger
// passes through several of them. They are all the memory that reads use. What an update is about to write is read
// when it has been written, from the thread of updates: a pass that follows the update does not wait for a read that
// only begins when its unit is reached.
#pragma once
#include <ATen/core/Tensor.h>
#include <c10/core/Event.h>

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <set>
#include <span>
#include <vector>

#include "runtime/offload/paged_file.hpp"
#include "runtime/sharding/parameter_store.hpp"

namespace dslaunch::runtime::offload {

struct ParameterFileOptions : PagedFileOptions {
  int64_t buffer_numel = 100'000'000;  // elements of one buffer, at most; rounded down to whole pages
  int num_buffers = 5;                 // at most
};

// The elements of an update's chunk are a multiple of this where parameters are in files: whole pages in every dtype.
constexpr int64_t kChunkMultiple = file_io::kDirectAlignment;

// Where everything lies. Pure.
struct ParameterFileLayout {
  struct Span {
    int64_t begin = 0, count = 0;  // elements of the slice
    int64_t offset = 0;            // in the file
  };
  struct Slice {
    at::ScalarType dtype = at::kFloat;
    int64_t offset = 0, bytes = 0;  // in the file
    std::vector<Span> spans;
  };
  std::vector<Slice> slices;  // by group; without spans: it is not in the file
  int64_t bytes = 0;          // of the file
  int64_t buffer_bytes = 0;   // of one buffer
  int num_buffers = 0;
};
ParameterFileLayout plan_parameter_file(const ParameterFileOptions& options, std::span<const StoredSlice> slices);
// Host memory of the buffers, and of what ranges go through.
int64_t parameter_file_memory(const ParameterFileLayout& layout);

class ParameterFile final : public ParameterStore {
 public:
  // Creates the file and takes its space and all buffers. Throws as PagedFile does. `blocks`: host memory from which
  // updates write. `check_peers`: called now and then while a copy to the device is awaited; throws if a rank was lost,
  // without which it never ends. May be empty.
  ParameterFile(ParameterFileOptions options, std::span<const StoredSlice> slices, std::vector<at::Tensor> blocks,
                at::Device device, std::function<void()> check_peers);

  const ParameterFileLayout& layout() const { return layout_; }
  const std::vector<at::Tensor>& blocks() const { return blocks_; }

  void write(int group, int64_t begin, const at::Tensor& values) override;
  void read(int group, const at::Tensor& slice) override;
  void read_ahead(std::span<const int> groups) override;
  size_t max_ahead() const override { return buffers_.size(); }

  // For updates: from now on until end_update() the group's slice is not read: what is on its way of it is dropped, and
  // planned reads of it, and those after them, wait. Any thread. begin_update() returns whether the group was being
  // updated already.
  bool begin_update(int group);
  void end_update(int group);
  // For updates: begins to write elements of one span, from a multiple of kChunkMultiple within it on: `bytes`, whole
  // pages that hold them from their front. Any thread.
  PagedFile::Ticket begin_write(const StoredParameter& parameter, std::span<const std::byte> bytes);
  void wait(PagedFile::Ticket ticket) { file_->wait(ticket); }

 private:
  struct Run {  // what one read brings
    int group = 0;
    int64_t offset = 0, bytes = 0;  // in the file
    bool operator==(const Run&) const = default;
  };
  struct Buffer {
    at::Tensor bytes;
    std::shared_ptr<c10::Event> copied;  // null: nothing to wait for
  };
  struct Started {
    Run run;
    size_t buffer = 0;
    PagedFile::Ticket ticket = 0;
  };

  std::unique_ptr<PagedFile> open_file(const ParameterFileOptions& options);
  std::vector<Run> runs_of(int group) const;
  // These need the lock. Begins planned reads while there is a buffer whose copy has been made.
  void start_reads();
  void drop_reads(size_t first);
  bool is_next(const Run& run) const;
  // The next of the planned reads; waits until it has ended.
  Started take_next();
  void copy(const Started& read, const at::Tensor& slice) const;

  // fixed after construction
  const ParameterFileLayout layout_;
  const at::Device device_;
  const std::function<void()> check_peers_;
  const std::vector<at::Tensor> blocks_;
  // guarded by mutex_, but for the bytes of a buffer that the reading thread has taken
  std::mutex mutex_;
  std::vector<Buffer> buffers_;
  std::deque<size_t> free_;          // buffers, the one that was used longest ago first
  std::deque<Started> started_;      // in the order of their use
  std::deque<Run> planned_;          // after those
  std::set<int> updating_;           // groups
  std::unique_ptr<PagedFile> file_;  // last: it uses buffers and blocks until it is gone
};

}  // namespace dslaunch::runtime::offload
