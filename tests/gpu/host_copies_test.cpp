// The copies of a save on a CUDA device: what is written over the originals afterwards never shows in them. Without a
// CUDA device it is skipped.
#include "runtime/checkpoint/host_staging_buffers.hpp"

#include <ATen/ATen.h>

#include <catch2/catch.hpp>

#include "support/cuda_device.hpp"

using namespace dslaunch;
using namespace dslaunch::runtime;

TEST_CASE("memory that was prepared is what the first save takes", "[gpu][host_staging_buffers]") {
  if (!test::has_device()) return;
  const at::Device device(at::kCUDA, 0);
  const at::Tensor first = at::full({40 << 20}, 3.0, at::TensorOptions().device(device)),
                   second = first.slice(0, 0, 1001);
  HostStagingBuffers copies(device);
  copies.prepare({static_cast<int64_t>(first.nbytes()), static_cast<int64_t>(second.nbytes())});
  copies.begin();
  const at::Tensor kept[] = {copies.take(first), copies.take(second)};
  copies.end();
  copies.wait_until_arrived();
  CHECK(copies.num_bytes() == static_cast<int64_t>(first.nbytes() + second.nbytes()));
  for (const at::Tensor& copy : kept) {
    CHECK(copy.is_pinned());
    CHECK(at::equal(copy, at::full_like(copy, 3.0)));
  }
}

TEST_CASE("copies hold the values of their moment while the device continues", "[gpu][host_staging_buffers]") {
  if (!test::has_device()) return;
  const at::Device device(at::kCUDA, 0);
  const auto options = at::TensorOptions().device(device);
  at::Tensor state = at::zeros({64 << 20}, options), buffer = at::zeros({1000}, options.dtype(at::kLong));
  HostStagingBuffers copies(device);
  const void* memory = nullptr;
  for (int step = 1; step <= 20; ++step) {
    state.add_(1);
    buffer.add_(1);
    copies.begin();
    const at::Tensor kept = copies.take(state), kept_buffer = copies.take_before_forward(buffer);
    copies.end();
    buffer.add_(100);  // as a forward does
    copies.block_current_stream();
    state.mul_(-7);  // as an update does
    copies.wait_until_arrived();
    CHECK(kept.is_pinned());
    CHECK(at::equal(kept, at::full_like(kept, step)));
    CHECK(at::equal(kept_buffer, at::full_like(kept_buffer, step)));
    if (!memory) memory = kept.const_data_ptr();
    CHECK(kept.const_data_ptr() == memory);  // the same memory in every save
    state.fill_(step);
    buffer.fill_(step);
  }
}
