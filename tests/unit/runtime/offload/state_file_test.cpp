#include "runtime/offload/state_file.hpp"

#include <ATen/ATen.h>

#include <atomic>
#include <catch2/catch.hpp>
#include <filesystem>

#include "runtime/offload/update_ring.hpp"
#include "support/expect_error.hpp"
#include "support/faulty_queue.hpp"
#include "support/temp_dir.hpp"

using namespace dslaunch;
using namespace dslaunch::runtime;
using namespace dslaunch::runtime::offload;

namespace {

constexpr int64_t kPage = file_io::kDirectAlignment / static_cast<int64_t>(sizeof(float));  // elements

StateFileOptions options_in(const test::TempDir& dir, int64_t sub_group_numel = kPage) {
  StateFileOptions out;
  out.directories = {dir.path()};
  out.directory_key = "nvme_path";
  out.block_size = 8192;
  out.sub_group_numel = sub_group_numel;
  out.num_arrays = 3;
  out.num_buffers = 3;
  return out;
}

at::Tensor numbers(int64_t numel, int64_t from) {
  return at::arange(from, from + numel, at::kFloat);
}

at::Tensor read(StoredArrays& span, size_t array, int64_t begin, int64_t count) {
  at::Tensor out = at::full({count}, -1.0F);
  span.read(array, begin, out, 0);
  return out;
}

}  // namespace

TEST_CASE("sub-groups begin with whole pages, and the file has room for all of them", "[runtime][offload]") {
  StateFileOptions options;
  options.num_arrays = 3;
  options.num_buffers = 4;
  options.sub_group_numel = 3 * kPage + 5;
  auto layout = plan_state_file(options, {7 * kPage + 1, 0, 2});
  CHECK(layout.sub_group_numel == 3 * kPage);
  CHECK(layout.num_sub_groups(0) == 3);
  CHECK(layout.num_sub_groups(1) == 0);
  CHECK(layout.begins == std::vector<int64_t>{0, 3 * 8 * 4096, 3 * 8 * 4096});
  CHECK(layout.bytes == 3 * 8 * 4096 + 3 * 4096);
  CHECK(layout.buffer_bytes == 3 * 3 * 4096);
  options.num_gradient_areas = 2;
  layout = plan_state_file(options, {7 * kPage + 1, 0, 2});
  CHECK(layout.bytes == 5 * 8 * 4096 + 5 * 4096);
  CHECK(layout.buffer_bytes == 4 * 3 * 4096);
  // No larger than what they hold, no smaller than a page.
  CHECK(plan_state_file({.sub_group_numel = 1 << 24}, {10, kPage + 1}).sub_group_numel == 2 * kPage);
  CHECK(plan_state_file({.sub_group_numel = 1}, {3 * kPage}).sub_group_numel == kPage);
  CHECK(state_file_memory(options, layout) == 4 * layout.buffer_bytes + 2 * layout.bytes);
}

TEST_CASE("ranges of any begin and length come back, and leave their neighbours alone", "[runtime][offload]") {
  const test::TempDir dir, other;
  auto options = options_in(dir, 2 * kPage);
  if (GENERATE(false, true)) options.directories.push_back(other.path());
  const std::vector<int64_t> numels{5 * kPage + 7, 1, 2 * kPage};
  const auto file = std::make_shared<StateFile>(options, numels);
  std::vector<std::vector<at::Tensor>> expected(3);
  for (size_t span = 0; span < numels.size(); ++span) {
    const auto arrays = stored_arrays(file, span);
    CHECK(arrays->num_arrays() == 3);
    for (size_t array = 0; array < 3; ++array) {
      CHECK(read(*arrays, array, 0, numels[span]).count_nonzero().item<int64_t>() == 0);
      expected[span].push_back(numbers(numels[span], static_cast<int64_t>(100'000 * (3 * span + array))));
      arrays->write(array, 0, expected[span].back());
    }
  }
  const auto first = stored_arrays(file, 0);
  for (const auto& [begin, count] : std::vector<std::pair<int64_t, int64_t>>{{0, 1},
                                                                             {3, 5},
                                                                             {kPage - 1, 2},
                                                                             {kPage, kPage},
                                                                             {2 * kPage - 3, 3 * kPage},
                                                                             {5 * kPage, 7},
                                                                             {1, 5 * kPage}}) {
    CAPTURE(begin, count);
    const at::Tensor values = numbers(count, -begin);
    first->write(1, begin, values);
    expected[0][1].narrow(0, begin, count).copy_(values);
    CHECK(at::equal(read(*first, 1, begin, count), values));
  }
  for (size_t span = 0; span < numels.size(); ++span) {
    for (size_t array = 0; array < 3; ++array) {
      CAPTURE(span, array);
      CHECK(at::equal(read(*stored_arrays(file, span), array, 0, numels[span]), expected[span][array]));
    }
  }
  CHECK(std::filesystem::is_empty(dir.path()));
}

TEST_CASE("ranges that follow are read ahead, but never what was there before a write", "[runtime][offload]") {
  const test::TempDir dir;
  auto options = options_in(dir);
  std::atomic<int> num_reads{0};
  std::atomic<bool> is_broken{false};
  options.wrap_queue = [&](std::unique_ptr<file_io::BlockQueue> inner) -> std::unique_ptr<file_io::BlockQueue> {
    return std::make_unique<test::FaultyQueue>(std::move(inner), [&](const file_io::Block& block) {
      num_reads += block.is_write ? 0 : 1;
      return is_broken ? std::optional<int64_t>(-EIO) : std::nullopt;
    });
  };
  const auto file = std::make_shared<StateFile>(options, std::vector<int64_t>{4 * kPage});
  const auto span = stored_arrays(file, 0);
  span->write(0, 0, numbers(4 * kPage, 0));
  num_reads = 0;
  const auto check = [&](int64_t begin, int64_t following, int64_t from) {
    at::Tensor out = at::full({kPage}, -1.0F);
    span->read(0, begin, out, following);
    CHECK(at::equal(out, numbers(kPage, from)));
  };
  for (int64_t page = 0; page < 4; ++page) check(page * kPage, (3 - page) * kPage, page * kPage);
  CHECK(num_reads == 4);
  // What is on its way is dropped where somebody else writes: a range, or an update.
  check(0, 3 * kPage, 0);
  span->write(0, kPage, numbers(kPage, 77));
  check(kPage, 2 * kPage, 77);
  UpdateRing ring(file, {});
  ring.begin({file->sub_groups(0)[2]});
  ring.next().master.copy_(numbers(kPage, 99));
  ring.store();
  ring.finish();
  check(2 * kPage, 0, 99);
  // An error belongs to whoever asks for the range.
  check(0, kPage, 0);
  is_broken = true;
  at::Tensor out = at::empty({kPage}, at::kFloat);
  test::expect_error(ExitCode::kIoError, {"read", "at offset"}, [&] { span->read(0, 3 * kPage, out, 0); });
  is_broken = false;
  check(kPage, 0, 77);
}

TEST_CASE("a ring brings every sub-group once and takes it back, whatever overlaps", "[runtime][offload]") {
  const test::TempDir dir;
  auto options = options_in(dir);
  options.num_buffers = GENERATE(1, 2, 3, 5);
  const bool reads_ahead = GENERATE(false, true), writes_behind = GENERATE(false, true);
  CAPTURE(options.num_buffers, reads_ahead, writes_behind);
  const std::vector<int64_t> numels{4 * kPage + 3, 9, 2 * kPage};
  const auto file = std::make_shared<StateFile>(options, numels);
  for (size_t span = 0; span < numels.size(); ++span) {
    for (size_t array = 0; array < 3; ++array) {
      stored_arrays(file, span)->write(array, 0, numbers(numels[span], static_cast<int64_t>(array)));
    }
  }
  UpdateRing ring(file, {reads_ahead, writes_behind});
  for (int step = 1; step <= 3; ++step) {
    std::vector<SubGroup> order;
    for (size_t span = 0; span < numels.size(); ++span) {
      for (const auto& each : file->sub_groups(span)) order.push_back(each);
    }
    CHECK(order.size() == 8);
    ring.begin(order);
    for (const auto& each : order) {
      const StateArrays arrays = ring.next();
      CHECK(arrays.master.numel() == each.count);
      CHECK(at::equal(arrays.moments[0], numbers(each.count, each.begin + 1 + 10 * (step - 1))));
      CHECK_FALSE(arrays.gradient.defined());
      arrays.master.add_(1);
      arrays.moments[0].add_(10);
      arrays.moments[1].add_(100);
      ring.store();
    }
    ring.finish();
  }
  for (size_t span = 0; span < numels.size(); ++span) {
    const auto arrays = stored_arrays(file, span);
    CHECK(at::equal(read(*arrays, 0, 0, numels[span]), numbers(numels[span], 3)));
    CHECK(at::equal(read(*arrays, 1, 0, numels[span]), numbers(numels[span], 31)));
    CHECK(at::equal(read(*arrays, 2, 0, numels[span]), numbers(numels[span], 302)));
  }
}

TEST_CASE("an error of the disk names directory, offset and reason", "[runtime][offload]") {
  const test::TempDir dir;
  auto options = options_in(dir);
  bool is_broken = false;
  options.wrap_queue = [&](std::unique_ptr<file_io::BlockQueue> inner) -> std::unique_ptr<file_io::BlockQueue> {
    return std::make_unique<test::FaultyQueue>(std::move(inner), [&](const file_io::Block& block) {
      return is_broken && block.is_write && block.offset >= 12'288 ? std::optional<int64_t>(-ENOSPC) : std::nullopt;
    });
  };
  const auto file = std::make_shared<StateFile>(options, std::vector<int64_t>{3 * kPage});
  UpdateRing ring(file, {true, true});
  ring.begin(file->sub_groups(0));
  ring.next();
  ring.store();
  is_broken = true;
  ring.next();
  ring.store();
  test::expect_error(ExitCode::kIoError, {"write", "at offset 12288", dir.path(), "No space left on device"},
                     [&] { ring.finish(); });
}

TEST_CASE("a directory that cannot hold state is named, with the option that sets another", "[runtime][offload]") {
  const test::TempDir dir;
  test::write_file(dir.path() + "/file", "");
  const auto open = [&](const std::string& name, int64_t numel) {
    auto options = options_in(dir);
    options.directories = {dir.path() + name};
    StateFile(options, {numel});
  };
  test::expect_error(ExitCode::kCannotCreate,
                     {"/absent'", "No such file or directory", "--set nvme_path=DIR", "--nvme_path DIR"},
                     [&] { open("/absent", 10); });
  test::expect_error(ExitCode::kCannotCreate, {"/file'", "Not a directory"}, [&] { open("/file", 10); });
  // More than any file system of this machine has, or lets a file have.
  CHECK_THROWS_WITH(open("", int64_t{1} << 58), Catch::Contains("reserve 3458764513820540928 bytes"));
}
