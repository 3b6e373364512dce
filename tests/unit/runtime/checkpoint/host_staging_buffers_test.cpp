#include "runtime/checkpoint/host_staging_buffers.hpp"

#include <ATen/ATen.h>

#include <catch2/catch.hpp>

using namespace dslaunch::runtime;

TEST_CASE("copies are the caller's until the next save, and their memory is used again",
          "[runtime][checkpoint][host_staging_buffers]") {
  HostStagingBuffers copies(at::kCPU);
  at::Tensor large = at::arange(3 << 20, at::kFloat), odd = at::arange(7, at::kByte), none = at::empty({0}, at::kLong);
  const at::Tensor slice = at::arange(12, at::kDouble).view({3, 4}).t();
  std::vector<const void*> memory;
  for (int save = 0; save < 3; ++save) {
    copies.begin();
    const std::vector<at::Tensor> kept{copies.take(odd), copies.take(large), copies.take(none),
                                       copies.take_before_forward(slice)};
    copies.end();
    CHECK(copies.num_bytes() == 7 + (3 << 22) + 96);
    large.add_(1);
    odd.zero_();
    copies.block_current_stream();
    copies.wait_until_arrived();
    CHECK(kept[1].equal(large - 1));
    CHECK(kept[0].equal(save == 0 ? at::arange(7, at::kByte) : at::zeros({7}, at::kByte)));
    CHECK(kept[2].numel() == 0);
    CHECK(kept[2].scalar_type() == at::kLong);
    CHECK(kept[3].equal(slice.reshape({-1})));
    if (save > 0) CHECK(memory == std::vector<const void*>{kept[0].const_data_ptr(), kept[1].const_data_ptr()});
    memory = {kept[0].const_data_ptr(), kept[1].const_data_ptr()};
  }
}
