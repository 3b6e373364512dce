#include "runtime/checkpoint/piece_values.hpp"

#include <ATen/ops/arange.h>
#include <ATen/ops/empty.h>

#include <catch2/catch.hpp>
#include <utility>
#include <vector>

#include "base/error.hpp"
#include "rank_threads.hpp"
#include "runtime/checkpoint/checkpoint_paths.hpp"
#include "runtime/checkpoint/shard_file.hpp"
#include "saved_example.hpp"
#include "support/memory_store.hpp"
#include "support/temp_dir.hpp"

using namespace dslaunch;
using namespace dslaunch::runtime;
using test::TempDir;

namespace {

constexpr int64_t kBlock = kPieceBlockBytes / sizeof(float);

// State that lies elsewhere: every block is made when it is asked for, in the same memory.
class Elsewhere {
 public:
  explicit Elsewhere(int64_t numel) : numel_(numel) {}

  PieceValues values() {
    return {numel_, at::kFloat, [this](int64_t begin, int64_t count) {
              asked_.emplace_back(begin, count);
              if (!buffer_.defined()) buffer_ = at::empty({count});
              return buffer_.narrow(0, 0, count).copy_(at::arange(begin, begin + count, at::kFloat));
            }};
  }
  const std::vector<std::pair<int64_t, int64_t>>& asked() const { return asked_; }

 private:
  const int64_t numel_;
  at::Tensor buffer_;
  std::vector<std::pair<int64_t, int64_t>> asked_;
};

}  // namespace

TEST_CASE("a piece that is read block by block becomes the same file", "[runtime][checkpoint]") {
  TempDir dir;
  const int64_t numel = GENERATE(0, 1, kBlock - 1, kBlock, kBlock + 1, 2 * kBlock + 5);
  Elsewhere elsewhere(numel);
  const auto read = write_shard(dir.path(), 0, {{"w", "master", 7, elsewhere.values()}}, "rng");
  const auto held = write_shard(dir.path(), 0, {{"w", "master", 7, at::arange(numel, at::kFloat)}}, "rng");
  CHECK(read.bytes == held.bytes);
  CHECK(read.xxh3_128 == held.xxh3_128);
  int64_t next = 0;
  for (const auto& [begin, count] : elsewhere.asked()) {
    CHECK(begin == next);
    CHECK(count <= kBlock);
    next += count;
  }
  CHECK(next == numel);
}

TEST_CASE("a piece that cannot be read fails the save on all ranks", "[runtime][checkpoint]") {
  TempDir dir;
  REQUIRE(test::save_on(test::one_host(dir.path(), 3), 10).front().code == 0);
  test::MemoryStore store;
  std::vector<test::RankOutcome> outcomes(3);
  test::on_all_ranks(3, [&](int rank) {
    outcomes[static_cast<size_t>(rank)] = test::outcome_of([&] {
      const auto hosts = test::one_host(dir.path(), 3);
      CheckpointWriter writer(test::writer_options(hosts, rank, 9), store);
      auto part = test::example_part(20, rank, 3);
      const auto fail = [](int64_t, int64_t) -> at::Tensor { throw SystemError("read", "'/mnt/swap'", EIO); };
      if (rank == 1) part.pieces.push_back({"w", "exp_avg_sq", 0, PieceValues(10, at::kFloat, fail)});
      writer.save(std::move(part));
      writer.finish();
    });
  });
  for (const auto& outcome : outcomes) {
    CHECK(outcome.code == 74);
    CHECK_THAT(outcome.message, Catch::Contains("rank 1") && Catch::Contains("/mnt/swap"));
  }
  CHECK(steps_in(dir.path()) == std::vector<int64_t>{10});
}
