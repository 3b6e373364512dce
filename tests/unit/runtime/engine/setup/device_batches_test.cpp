// Batches on their way from the loader to the step: order, position, errors, and how long a step waits.
#include "runtime/engine/setup/device_batches.hpp"

#include <atomic>
#include <catch2/catch.hpp>
#include <chrono>
#include <latch>

#include "base/error.hpp"

using namespace dslaunch;
using namespace dslaunch::runtime;
using engine::setup::DeviceBatches;

namespace {

// One integer per sample, its index; `on_read` is called first.
class IndexSamples : public SampleSource {
 public:
  explicit IndexSamples(std::function<void(int64_t sample)> on_read) : on_read_(std::move(on_read)) {}
  const std::vector<ArrayInfo>& arrays() const override { return arrays_; }
  int64_t num_samples() const override { return 100; }
  std::string describe(size_t, int64_t) const override { return "'memory'"; }
  void read(size_t, int64_t sample, void* out) const override {
    on_read_(sample);
    *static_cast<int64_t*>(out) = sample;
  }

 private:
  std::function<void(int64_t sample)> on_read_;
  std::vector<ArrayInfo> arrays_{{"i", at::kLong, {}}};
};

// Micro batches of one sample in order, two to a step, from step 5 on.
DeviceBatches batches_of(
    int64_t num_workers, std::function<void(int64_t sample)> on_read = [](int64_t) {}) {
  config::Data data;
  data.shuffle = false;
  data.num_workers = num_workers;
  data.prefetch = 3;
  const LoaderOptions options{.batch = {.train_batch = 2, .micro_batch = 1, .accumulation = 2}};
  return {BatchLoader(std::make_shared<IndexSamples>(std::move(on_read)), {{0}, {}}, data, options, {}), at::kCPU, 5};
}

int64_t next_index(DeviceBatches& batches) {
  return batches.next().inputs.at(0).item<int64_t>();
}

}  // namespace

TEST_CASE("batches come in order, and the position is that of what was handed out",
          "[runtime][engine][device_batches]") {
  for (const int64_t num_workers : {0, 1, 3}) {
    DeviceBatches batches = batches_of(num_workers);
    CHECK(batches.position() == DataPosition{0, 0});
    for (int64_t i = 0; i < 20; ++i) {
      CHECK(next_index(batches) == i);
      CHECK(batches.position() == DataPosition{0, (i + 1) / 2 * 2});
    }
  }
}

TEST_CASE("batches are read while a step runs", "[runtime][engine][device_batches]") {
  // The read of each batch waits until the step before it has begun, and the step until the batch after it is read:
  // without overlap both would wait for ever.
  constexpr int64_t kCount = 6;
  std::vector<std::unique_ptr<std::latch>> begun, read;
  for (int64_t i = 0; i <= kCount; ++i) {
    begun.push_back(std::make_unique<std::latch>(1));
    read.push_back(std::make_unique<std::latch>(1));
  }
  DeviceBatches batches = batches_of(1, [&](int64_t sample) {
    if (sample > kCount) return;
    if (sample > 0) begun[static_cast<size_t>(sample - 1)]->wait();
    read[static_cast<size_t>(sample)]->count_down();
  });
  for (int64_t i = 0; i < kCount; ++i) {
    CHECK(next_index(batches) == i);
    begun[static_cast<size_t>(i)]->count_down();
    read[static_cast<size_t>(i + 1)]->wait();  // the step
  }
  begun[kCount]->count_down();
}

TEST_CASE("a step's wait is the time that its batches took", "[runtime][engine][device_batches]") {
  using Clock = std::chrono::steady_clock;
  const auto read_time = std::chrono::milliseconds(2);
  DeviceBatches batches = batches_of(0, [&](int64_t sample) {
    const auto began = Clock::now();
    while (sample >= 2 && Clock::now() - began < read_time) continue;
  });
  const auto began = Clock::now();
  for (int i = 0; i < 4; ++i) batches.next();
  const double total = std::chrono::duration<double, std::milli>(Clock::now() - began).count();
  CHECK(batches.waited_ms(6) >= 4);
  CHECK(batches.waited_ms(5) + batches.waited_ms(6) <= total);
  CHECK(batches.waited_ms(7) == 0);
  for (int i = 0; i < 16; ++i) batches.next();
  CHECK(batches.waited_ms(6) == 0);  // long past
}

TEST_CASE("a reader's error is thrown in its batch's place", "[runtime][engine][device_batches]") {
  for (const int64_t num_workers : {0, 2}) {
    DeviceBatches batches = batches_of(num_workers, [](int64_t sample) {
      if (sample == 3) throw UserError(ExitCode::kBadInput, "sample 3");
    });
    for (int64_t i = 0; i < 3; ++i) CHECK(next_index(batches) == i);
    CHECK_THROWS_WITH(batches.next(), "sample 3");
  }
}
