#include "runtime/offload/gradient_files.hpp"

#include <ATen/ATen.h>

#include <atomic>
#include <catch2/catch.hpp>

#include "runtime/offload/update_ring.hpp"
#include "support/expect_error.hpp"
#include "support/faulty_queue.hpp"
#include "support/temp_dir.hpp"

using namespace dslaunch;
using namespace dslaunch::runtime;
using namespace dslaunch::runtime::offload;

namespace {

constexpr int64_t kPage = 1024;  // fp32 elements

StateFileOptions options_in(const std::string& directory) {
  StateFileOptions out;
  out.directories = {directory};
  out.block_size = 4096;
  out.sub_group_numel = 2 * kPage;
  out.num_arrays = 2;
  out.num_gradient_areas = 2;
  out.num_buffers = 2;
  return out;
}

struct Fixture {
  test::TempDir dir;
  std::shared_ptr<StateFile> file;
  std::vector<std::shared_ptr<StoredArrays>> spans;
  std::unique_ptr<GradientFiles> gradients;

  explicit Fixture(const std::vector<int64_t>& numels, test::Fault fault = {}) {
    auto options = options_in(dir.path());
    if (fault) {
      options.wrap_queue = [fault](auto inner) -> std::unique_ptr<file_io::BlockQueue> {
        return std::make_unique<test::FaultyQueue>(std::move(inner), fault);
      };
    }
    auto blocks = GradientFiles::allocate_blocks(plan_state_file(options, numels), at::kCPU);
    file = std::make_shared<StateFile>(options, numels, std::move(blocks));
    for (size_t i = 0; i < numels.size(); ++i) spans.push_back(stored_arrays(file, i));
    gradients = std::make_unique<GradientFiles>(file, at::kCPU, [] {});
  }
};

at::Tensor numbers(int64_t numel, int64_t from, at::ScalarType dtype) {
  return at::arange(from, from + numel, at::kFloat).to(dtype);
}

}  // namespace

TEST_CASE("gradients of every span and area come back, by ranges, by devices and in updates", "[runtime][offload]") {
  const auto dtype = GENERATE(at::kFloat, at::kBFloat16);
  const std::vector<int64_t> numels{7 * kPage + 3, 5, 80 * kPage};
  Fixture f(numels);
  for (int area : {0, 1}) {
    for (size_t i = 0; i < numels.size(); ++i) {
      f.gradients->write(*f.spans[i], area, numbers(numels[i], 100 * area + static_cast<int64_t>(i), dtype));
    }
  }
  f.gradients->finish();
  for (int area : {0, 1}) {
    for (size_t i = 0; i < numels.size(); ++i) {
      CAPTURE(area, i);
      const at::Tensor expected = numbers(numels[i], 100 * area + static_cast<int64_t>(i), dtype);
      const at::Tensor whole = at::empty({numels[i]}, dtype), part = at::empty({numels[i] - 2}, dtype);
      f.gradients->read(*f.spans[i], area, whole);
      CHECK(at::equal(whole, expected));
      f.spans[i]->read_gradient(area, 1, part);
      CHECK(at::equal(part, expected.narrow(0, 1, part.numel())));
      auto order = f.file->sub_groups(i);
      for (auto& each : order) each.gradient = {area, dtype, false};
      UpdateRing ring(f.file, {true, true});
      ring.begin(order);
      for (const auto& each : order) {
        const StateArrays arrays = ring.next();
        CHECK(at::equal(arrays.gradient, expected.narrow(0, each.begin, each.count)));
        CHECK(arrays.master.count_nonzero().item<int64_t>() == 0);
        ring.store();
      }
      ring.finish();
    }
  }
}

TEST_CASE("gradients that were not stored are zeros in an update", "[runtime][offload]") {
  Fixture f({kPage});
  f.gradients->write(*f.spans[0], 0, numbers(kPage, 1, at::kFloat));
  f.gradients->finish();
  auto order = f.file->sub_groups(0);
  order[0].gradient = {0, at::kFloat, true};
  UpdateRing ring(f.file, {});
  ring.begin(order);
  CHECK(ring.next().gradient.count_nonzero().item<int64_t>() == 0);
}

TEST_CASE("a disk that is full while backward writes gradients is named", "[runtime][offload]") {
  const int64_t numel = (2 * GradientFiles::kNumBlocks + 1) * kPage;  // more than all blocks
  Fixture f({numel}, [](const file_io::Block& block) {
    return block.is_write ? std::optional<int64_t>(-ENOSPC) : std::nullopt;
  });
  test::expect_error(ExitCode::kIoError, {"write", "at offset", f.dir.path(), "No space left"}, [&] {
    f.gradients->write(*f.spans[0], 0, numbers(numel, 0, at::kFloat));
    f.gradients->finish();
  });
}
