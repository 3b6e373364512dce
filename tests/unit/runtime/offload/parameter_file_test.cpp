#include "runtime/offload/parameter_file.hpp"

#include <ATen/ATen.h>

#include <array>
#include <atomic>
#include <catch2/catch.hpp>
#include <filesystem>
#include <future>
#include <mutex>
#include <numeric>
#include <thread>

#include "runtime/offload/upload_ring.hpp"
#include "support/expect_error.hpp"
#include "support/faulty_queue.hpp"
#include "support/temp_dir.hpp"

using namespace dslaunch;
using namespace dslaunch::runtime;
using namespace dslaunch::runtime::offload;

namespace {

constexpr int64_t kPage = file_io::kDirectAlignment;

// Offsets of what has been read, in order.
struct Reads {
  std::mutex mutex;
  std::vector<int64_t> offsets;

  std::vector<int64_t> take() {
    const std::lock_guard lock(mutex);
    return std::exchange(offsets, {});
  }
};

ParameterFileOptions options_in(const test::TempDir& dir, test::Fault fault = {}) {
  ParameterFileOptions out;
  out.directories = {dir.path()};
  out.directory_key = "nvme_path";
  out.content = "offloaded parameters";
  out.block_size = 1 << 20;
  out.queue_depth = 1;  // in order
  out.buffer_numel = 2 * kPage;
  out.num_buffers = 3;
  if (!fault) return out;
  out.wrap_queue = [fault](auto inner) -> std::unique_ptr<file_io::BlockQueue> {
    return std::make_unique<test::FaultyQueue>(std::move(inner), fault);
  };
  return out;
}

at::Tensor numbers(int64_t numel, int64_t from, at::ScalarType dtype) {
  return (at::arange(from, from + numel, at::kInt) % 251).to(dtype);
}

at::Tensor read(ParameterFile& file, int group, int64_t numel, at::ScalarType dtype) {
  const at::Tensor out = at::full({numel}, 7, dtype);
  file.read(group, out);
  return out;
}

}  // namespace

TEST_CASE("a slice lies together, and each of its spans begins with a page", "[runtime][offload]") {
  ParameterFileOptions options;
  options.buffer_numel = 5000;
  options.num_buffers = 4;
  const std::vector<StoredSlice> slices{{1, at::kBFloat16, {2048, 1, 4096}}, {4, at::kByte, {9}}};
  const auto layout = plan_parameter_file(options, slices);
  REQUIRE(layout.slices.size() == 5);
  CHECK(layout.slices[0].spans.empty());
  const auto& first = layout.slices[1];
  CHECK(first.offset == 0);
  CHECK(first.bytes == 4 * kPage);
  CHECK(first.spans[1].begin == 2048);
  CHECK(first.spans[1].offset == kPage);
  CHECK(first.spans[2].begin == 2049);
  CHECK(first.spans[2].offset == 2 * kPage);
  CHECK(layout.slices[4].offset == 4 * kPage);
  CHECK(layout.bytes == 5 * kPage);
  CHECK(layout.buffer_bytes == 2 * kPage);  // 10,000 bytes
  CHECK(layout.num_buffers == 3);           // two for the first slice, one for the other
  CHECK(parameter_file_memory(layout) == 3 * 2 * kPage + 2 * 5 * kPage);
  options.buffer_numel = 1;
  CHECK(plan_parameter_file(options, slices).buffer_bytes == kPage);
  options.buffer_numel = 100'000'000;
  CHECK(plan_parameter_file(options, slices).buffer_bytes == 4 * kPage);
  CHECK(plan_parameter_file(options, slices).num_buffers == 2);
}

TEST_CASE("slices come back whole, whatever their buffers are and whoever wrote them", "[runtime][offload]") {
  const test::TempDir dir, other;
  auto options = options_in(dir);
  options.num_buffers = GENERATE(1, 2, 5);
  options.buffer_numel = GENERATE(int64_t{1}, 3 * kPage, int64_t{1} << 30);
  const bool reads_ahead = GENERATE(false, true);
  if (GENERATE(false, true)) {
    options.directories.push_back(other.path());
    options.block_size = kPage;
  }
  const std::vector<StoredSlice> slices{
      {0, at::kFloat, {5 * kPage + 3, 1}}, {2, at::kBFloat16, {7, 3 * kPage + 1, 2 * kPage}}, {3, at::kByte, {11}}};
  ParameterFile file(options, slices, UploadRing::allocate_blocks(at::kCPU, kPage), at::kCPU, {});
  std::vector<at::Tensor> want;
  for (const auto& slice : slices) {
    CHECK(read(file, slice.group, slice.numel(), slice.dtype).count_nonzero().item<int64_t>() == 0);
    want.push_back(numbers(slice.numel(), slice.group, slice.dtype));
    // In fp32, and in ranges that respect neither pages nor spans.
    for (int64_t begin = 0; begin < slice.numel(); begin += 4999) {
      const int64_t count = std::min<int64_t>(4999, slice.numel() - begin);
      file.write(slice.group, begin, want.back().narrow(0, begin, count).to(at::kFloat));
    }
  }
  for (int round = 0; round < 3; ++round) {
    CAPTURE(round);
    const std::vector<int> order{0, 2, 3, 2, 0};
    for (size_t i = 0; i < order.size(); ++i) {
      const auto index = order[i] == 0 ? 0U : static_cast<size_t>(order[i] - 1);
      CHECK(at::equal(read(file, order[i], slices[index].numel(), slices[index].dtype), want[index]));
      if (reads_ahead) file.read_ahead(std::span(order).subspan(i + 1));
    }
    file.read_ahead({});
    // As an update writes: the second chunk of the second span of group 2.
    UploadRing ring(at::kCPU, file.blocks());
    const at::Tensor chunk = numbers(2 * kPage, 50 + round, at::kBFloat16);
    ring.next(2 * kPage, at::kBFloat16).copy_(chunk);
    const auto ticket = file.begin_write({nullptr, 2, 7 + kPage, at::kBFloat16}, ring.filled_pages());
    ring.is_written_by([&] { file.wait(ticket); });
    ring.finish_writes();
    want[1].narrow(0, 7 + kPage, 2 * kPage).copy_(chunk);
  }
  CHECK(std::filesystem::is_empty(dir.path()));
}

TEST_CASE("as many slices are read ahead as there are buffers, and each once", "[runtime][offload]") {
  const test::TempDir dir;
  Reads reads;
  const std::vector<StoredSlice> slices{{0, at::kByte, {kPage}},
                                        {1, at::kByte, {kPage}},
                                        {2, at::kByte, {kPage}},
                                        {3, at::kByte, {kPage}},
                                        {4, at::kByte, {kPage}}};
  auto options = options_in(dir, [&](const file_io::Block& block) -> std::optional<int64_t> {
    const std::lock_guard lock(reads.mutex);
    if (!block.is_write) reads.offsets.push_back(block.offset / kPage);
    return std::nullopt;
  });
  ParameterFile file(options, slices, {}, at::kCPU, {});
  CHECK(file.max_ahead() == 3);
  const auto next = [&](int group) { read(file, group, kPage, at::kByte); };
  const std::vector<int> order{0, 1, 2, 3, 4};
  next(0);
  file.read_ahead(std::span(order).subspan(1));
  next(1);  // the fourth begins as its buffer is free again
  file.read_ahead(std::span(order).subspan(2));
  next(2);
  next(3);
  next(4);
  CHECK(reads.take() == std::vector<int64_t>{0, 1, 2, 3, 4});
  // Another order than announced: what is on its way is dropped, and later read again.
  file.read_ahead(order);
  next(3);
  next(0);
  CHECK(at::equal(read(file, 1, kPage, at::kByte), at::zeros({kPage}, at::kByte)));
  const auto all = reads.take();
  CHECK(std::vector<int64_t>(all.end() - 3, all.end()) == std::vector<int64_t>{3, 0, 1});
}

TEST_CASE("what an update is about to write is read ahead when it has been written", "[runtime][offload]") {
  const test::TempDir dir;
  Reads reads;
  std::vector<StoredSlice> slices;
  for (int group = 0; group < 5; ++group) slices.push_back({group, at::kByte, {kPage}});
  auto options = options_in(dir, [&](const file_io::Block& block) -> std::optional<int64_t> {
    const std::lock_guard lock(reads.mutex);
    if (!block.is_write) reads.offsets.push_back(block.offset / kPage);
    return std::nullopt;
  });
  ParameterFile file(options, slices, {}, at::kCPU, {});
  // Blocks are moved in the order of their requests: when a write has ended, earlier reads have.
  const auto write = [&](int group, int64_t from) { file.write(group, 0, numbers(kPage, from, at::kByte)); };
  const auto take_reads = [&] {
    write(4, 0);
    return reads.take();
  };
  const std::vector<int> order{0, 1, 2, 3};
  for (const int group : order) write(group, group);
  file.begin_update(0);
  file.begin_update(2);
  file.read_ahead(order);
  CHECK(take_reads().empty());
  write(0, 100);
  CHECK(take_reads().empty());
  file.end_update(0);
  CHECK(take_reads() == std::vector<int64_t>{0, 1});
  file.end_update(2);
  CHECK(take_reads() == std::vector<int64_t>{2});  // as many as there are buffers
  // Reads that were begun before an update do not bring what was there.
  file.begin_update(1);
  write(1, 200);
  file.end_update(1);
  write(2, 50);
  CHECK(at::equal(read(file, 0, kPage, at::kByte), numbers(kPage, 100, at::kByte)));
  CHECK(at::equal(read(file, 1, kPage, at::kByte), numbers(kPage, 200, at::kByte)));
  CHECK(at::equal(read(file, 2, kPage, at::kByte), numbers(kPage, 50, at::kByte)));
  CHECK(at::equal(read(file, 3, kPage, at::kByte), numbers(kPage, 3, at::kByte)));
}

// As a step does with the thread of updates: a group is read when its update is known to be written, the next ones are
// read ahead meanwhile.
TEST_CASE("reads ahead follow the updates of another thread", "[runtime][offload]") {
  constexpr int kGroups = 6, kRounds = 20;
  constexpr int64_t kNumel = 3 * kPage;  // two buffers each
  const test::TempDir dir;
  std::vector<StoredSlice> slices;
  for (int group = 0; group < kGroups; ++group) slices.push_back({group, at::kByte, {kNumel}});
  auto options = options_in(dir);
  options.queue_depth = 4;
  ParameterFile file(options, slices, UploadRing::allocate_blocks(at::kCPU, kNumel), at::kCPU, {});
  const auto expected = [](int group, int round) { return numbers(kNumel, 10 * group + round, at::kByte); };
  std::vector<int> forward(kGroups), backward(kGroups);
  std::iota(forward.begin(), forward.end(), 0);
  std::iota(backward.rbegin(), backward.rend(), 0);
  for (int round = 0; round < kRounds; ++round) {
    std::array<std::promise<void>, kGroups> updated;
    for (const int group : forward) file.begin_update(group);
    std::thread updates([&] {
      UploadRing ring(at::kCPU, file.blocks());
      for (const int group : forward) {
        ring.next(kNumel, at::kByte).copy_(expected(group, round));
        const auto ticket = file.begin_write({nullptr, group, 0, at::kByte}, ring.filled_pages());
        file.wait(ticket);
        file.end_update(group);
        updated[static_cast<size_t>(group)].set_value();
      }
    });
    int num_wrong = 0;
    file.read_ahead(forward);
    for (size_t i = 0; i < kGroups; ++i) {
      updated[i].get_future().wait();
      num_wrong += at::equal(read(file, forward[i], kNumel, at::kByte), expected(forward[i], round)) ? 0 : 1;
      file.read_ahead(std::span(forward).subspan(i + 1));
    }
    file.read_ahead(backward);
    for (const int group : backward) {
      num_wrong += at::equal(read(file, group, kNumel, at::kByte), expected(group, round)) ? 0 : 1;
    }
    updates.join();
    CHECK(num_wrong == 0);
  }
}

TEST_CASE("a failed read of parameters is told to who needs it, and to nobody else", "[runtime][offload]") {
  const test::TempDir dir;
  std::atomic<bool> is_broken{false};
  const std::vector<StoredSlice> slices{{0, at::kByte, {kPage}}, {1, at::kByte, {kPage}}};
  auto options = options_in(dir, [&](const file_io::Block& block) {
    return is_broken && block.offset == kPage ? std::optional<int64_t>(-EIO) : std::nullopt;
  });
  ParameterFile file(options, slices, {}, at::kCPU, {});
  is_broken = true;
  file.read_ahead(std::vector<int>{1});
  read(file, 0, kPage, at::kByte);
  file.read_ahead(std::vector<int>{1});
  test::expect_error(ExitCode::kIoError, {"read 4096 bytes at offset 4096", dir.path(), "Input/output error"},
                     [&] { read(file, 1, kPage, at::kByte); });
  is_broken = false;
  CHECK(at::equal(read(file, 1, kPage, at::kByte), at::zeros({kPage}, at::kByte)));
}

TEST_CASE("a directory that cannot hold parameters is named, with the option that sets another", "[runtime][offload]") {
  const test::TempDir dir;
  const auto open = [&](const std::string& name, int64_t numel) {
    auto options = options_in(dir);
    options.directories = {dir.path() + name};
    ParameterFile(options, std::vector<StoredSlice>{{0, at::kByte, {numel}}}, {}, at::kCPU, {});
  };
  test::expect_error(ExitCode::kCannotCreate,
                     {"/absent'", "No such file or directory", "for offloaded parameters", "--set nvme_path=DIR"},
                     [&] { open("/absent", 10); });
  // More than any file system of this machine has, or lets a file have.
  CHECK_THROWS_WITH(open("", int64_t{1} << 58), Catch::Contains("reserve 288230376151711744 bytes"));
}
