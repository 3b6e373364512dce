#include "runtime/sharding/quantized_collectives.hpp"

#include <ATen/ATen.h>

#include <catch2/catch.hpp>
#include <functional>
#include <thread>

#include "quantized_samples.hpp"
#include "support/thread_communicator.hpp"

using namespace dslaunch;
using namespace dslaunch::runtime;

namespace {

void on_all_ranks(int size, const std::function<void(comm::Communicator&)>& body) {
  auto group = std::make_shared<test::ThreadGroup>(size);
  std::vector<std::thread> threads;
  for (int rank = 0; rank < size; ++rank) {
    threads.emplace_back([&, rank] {
      test::ThreadCommunicator communicator(group, rank);
      body(communicator);
    });
  }
  for (auto& thread : threads) thread.join();
}

}  // namespace

TEST_CASE("bf16 is gathered within half a step and the same on all ranks",
          "[runtime][sharding][quantized_collectives]") {
  for (int size : {1, 2, 3, 4}) {
    const int64_t shard = 320;
    const at::Tensor whole = noise(size * shard, 5).to(at::kBFloat16);
    std::vector<at::Tensor> outs(static_cast<size_t>(size));
    on_all_ranks(size, [&](comm::Communicator& group) {
      at::Tensor out = at::empty_like(whole);
      quantized_all_gather(group, whole.narrow(0, group.rank() * shard, shard), out);
      outs[static_cast<size_t>(group.rank())] = out;
    });
    for (const auto& out : outs) CHECK(out.equal(outs[0]));
    for (int rank = 0; rank < size; ++rank) {
      const at::Tensor part = whole.narrow(0, rank * shard, shard).to(at::kFloat);
      const at::Tensor got = outs[0].narrow(0, rank * shard, shard).to(at::kFloat);
      // and half a unit of bf16, which has 8 bits
      CHECK((got - part).abs().le(bound(part, kWeightWire) + got.abs() / 256).all().item<bool>());
    }
  }
}

TEST_CASE("a quantized sum is off by at most half a step of each peer", "[runtime][sharding][quantized_collectives]") {
  for (int size : {1, 2, 3, 4, 5}) {
    const int64_t slice = 300;
    std::vector<at::Tensor> ins, outs(static_cast<size_t>(size));
    for (int rank = 0; rank < size; ++rank) ins.push_back(noise(size * slice, 10 + rank));
    on_all_ranks(size, [&](comm::Communicator& group) {
      const auto rank = static_cast<size_t>(group.rank());
      outs[rank] = at::empty({slice}, at::kFloat);
      quantized_reduce_scatter(group, ins[rank], outs[rank]);
    });
    for (int rank = 0; rank < size; ++rank) {
      at::Tensor exact = at::zeros({slice}, at::kDouble), allowed = at::full({slice}, 1e-5, at::kDouble);
      for (int peer = 0; peer < size; ++peer) {
        const at::Tensor part = ins[static_cast<size_t>(peer)].narrow(0, rank * slice, slice);
        exact += part;
        if (peer != rank) allowed += bound(part, kGradientWire);
      }
      CHECK((outs[static_cast<size_t>(rank)] - exact).abs().le(allowed).all().item<bool>());
    }
  }
}

TEST_CASE("with error feedback the mean of many sums approaches the exact one",
          "[runtime][sharding][quantized_collectives]") {
  const int64_t slice = 256;
  const int size = 2, rounds = 64;
  std::vector<at::Tensor> ins{noise(size * slice, 1), noise(size * slice, 2)};
  std::vector<double> plain(size), fed(size);
  on_all_ranks(size, [&](comm::Communicator& group) {
    const auto rank = static_cast<size_t>(group.rank());
    const at::Tensor exact =
        ins[0].narrow(0, group.rank() * slice, slice) + ins[1].narrow(0, group.rank() * slice, slice);
    ErrorFeedback feedback(/*beta=*/0.0, /*reset_interval=*/1024);
    at::Tensor once = at::empty({slice}, at::kFloat), out = at::empty({slice}, at::kFloat),
               sum = at::zeros({slice}, at::kFloat);
    quantized_reduce_scatter(group, ins[rank], once);
    for (int round = 0; round < rounds; ++round) {
      quantized_reduce_scatter(group, ins[rank], out, kGradientWire, &feedback);
      sum += out;
    }
    plain[rank] = (once - exact).abs().max().item<double>();
    fed[rank] = (sum / rounds - exact).abs().max().item<double>();
  });
  // With beta 0 the error is carried whole: after n rounds at most one error of one round is left, over n; the scales
  // of the fed values are at most half a step larger.
  for (int rank = 0; rank < size; ++rank) {
    CHECK(plain[static_cast<size_t>(rank)] > 0.02);
    CHECK(fed[static_cast<size_t>(rank)] < 0.3 / rounds * 2);
  }
}
