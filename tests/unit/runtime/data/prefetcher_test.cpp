#include "runtime/data/prefetcher.hpp"

#include <atomic>
#include <catch2/catch.hpp>
#include <latch>
#include <new>
#include <system_error>

#include "base/error.hpp"
#include "support/refused_threads.hpp"

using namespace dslaunch;
using namespace dslaunch::runtime;

namespace {

// One integer per sample, its index; `on_read` is called first.
class IndexSamples : public SampleSource {
 public:
  explicit IndexSamples(std::function<void(int64_t sample)> on_read = {}) : on_read_(std::move(on_read)) {}
  const std::vector<ArrayInfo>& arrays() const override { return arrays_; }
  int64_t num_samples() const override { return 1000; }
  std::string describe(size_t, int64_t) const override { return "'memory'"; }
  void read(size_t, int64_t sample, void* out) const override {
    if (on_read_) on_read_(sample);
    *static_cast<int64_t*>(out) = sample;
  }

 private:
  std::function<void(int64_t sample)> on_read_;
  std::vector<ArrayInfo> arrays_{{"i", at::kLong, {}}};
};

BatchAssembler assembler(std::function<void(int64_t sample)> on_read = {}) {
  return {std::make_shared<IndexSamples>(std::move(on_read)), {{0}, {}}, {}};
}

// Batches of one sample: 0, 1, ... count - 1.
Prefetcher::Plan counting_to(int64_t count) {
  return [next = int64_t{0}, count]() mutable -> std::optional<MicroBatchPlan> {
    if (next == count) return std::nullopt;
    MicroBatchPlan plan;
    plan.samples = {next++};
    plan.num_samples = 1;
    return plan;
  };
}

int64_t index_in(const std::optional<Batch>& batch) {
  return batch ? batch->inputs.at(0).item<int64_t>() : -1;
}

}  // namespace

TEST_CASE("a worker thread that the system refuses is told, and those before it have ended",
          "[runtime][data][prefetcher]") {
  RefusedThreads after(2);
  const auto no_plan = [] { return std::optional<MicroBatchPlan>(); };
  CHECK_THROWS_AS(Prefetcher(no_plan, BatchAssembler(nullptr, {}, {}), 4, 4), std::system_error);
}

TEST_CASE("a plan that fails is told in its place", "[runtime][data][prefetcher]") {
  const auto too_large = []() -> std::optional<MicroBatchPlan> { throw std::bad_alloc(); };
  for (const int64_t num_workers : {0, 2}) {
    Prefetcher prefetcher(too_large, BatchAssembler(nullptr, {}, {}), num_workers, 4);
    CHECK_THROWS_AS(prefetcher.next(), std::bad_alloc);
  }
}

TEST_CASE("batches come in the order of the plan, whichever is ready first", "[runtime][data][prefetcher]") {
  std::latch second_is_read(1);
  Prefetcher prefetcher(counting_to(3), assembler([&](int64_t sample) {
                          if (sample == 0) second_is_read.wait();
                          if (sample == 1) second_is_read.count_down();
                        }),
                        2, 3);
  for (int64_t i = 0; i < 3; ++i) CHECK(index_in(prefetcher.next()) == i);
  CHECK_FALSE(prefetcher.next());
  CHECK_FALSE(prefetcher.next());
}

TEST_CASE("a source that fails is told in its place, and the batches around it come", "[runtime][data][prefetcher]") {
  for (const int64_t num_workers : {0, 1, 3}) {
    INFO(num_workers << " workers");
    Prefetcher prefetcher(counting_to(20), assembler([](int64_t sample) {
                            if (sample % 5 == 3)
                              throw UserError(ExitCode::kBadInput, "sample " + std::to_string(sample));
                          }),
                          num_workers, 4);
    for (int64_t i = 0; i < 20; ++i) {
      if (i % 5 == 3) {
        CHECK_THROWS_WITH(prefetcher.next(), "sample " + std::to_string(i));
      } else {
        CHECK(index_in(prefetcher.next()) == i);
      }
    }
    CHECK_FALSE(prefetcher.next());
  }
}

TEST_CASE("the plan is asked by one worker at a time, and not further ahead than the depth",
          "[runtime][data][prefetcher]") {
  constexpr int64_t kDepth = 3, kCount = 2000;
  std::atomic<bool> inside = false, overlapped = false;
  std::atomic<int64_t> num_planned = 0, num_returned = 0, furthest = 0;
  auto counting = counting_to(kCount);
  Prefetcher prefetcher(
      [&] {
        if (inside.exchange(true)) overlapped = true;
        const int64_t ahead = ++num_planned - num_returned;
        furthest = std::max<int64_t>(furthest, ahead);
        std::this_thread::yield();
        auto plan = counting();
        inside = false;
        return plan;
      },
      assembler(), 8, kDepth);
  for (int64_t i = 0; i < kCount; ++i) {
    REQUIRE(index_in(prefetcher.next()) == i);
    ++num_returned;
  }
  CHECK_FALSE(overlapped);
  CHECK(furthest <= kDepth + 1);  // next() has taken one that is not counted yet
}
