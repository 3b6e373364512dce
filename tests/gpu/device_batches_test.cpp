// Batches copied and normalized in a stream of their own, on a CUDA device. Without a device it is skipped.
#include "runtime/engine/setup/device_batches.hpp"

#include <ATen/ATen.h>

#include <catch2/catch.hpp>
#include <cstring>

#include "runtime/engine/setup/training_data.hpp"
#include "support/cuda_device.hpp"

using namespace dslaunch;
using namespace dslaunch::runtime;
using namespace dslaunch::runtime::engine::setup;

namespace {

const at::Device kDevice(at::kCUDA, 0);

// x uint8 [3, 64, 64] and labels int64 [], different in each sample.
class Pictures : public SampleSource {
 public:
  const std::vector<ArrayInfo>& arrays() const override { return arrays_; }
  int64_t num_samples() const override { return 320; }
  std::string describe(size_t, int64_t) const override { return "'memory'"; }
  void read(size_t array, int64_t sample, void* out) const override {
    if (array == 1) return static_cast<void>(std::memcpy(out, &sample, sizeof sample));
    const at::Tensor picture = (at::arange(3 * 64 * 64) * 37 + 11 * sample).remainder(256).to(at::kByte);
    std::memcpy(out, picture.const_data_ptr(), picture.nbytes());
  }

 private:
  std::vector<ArrayInfo> arrays_{{"x", at::kByte, {3, 64, 64}}, {"labels", at::kLong, {}}};
};

BatchLoader loader(bool pin) {
  config::Data data;
  data.normalize = config::Normalize{{0.485, 0.4, 0.3}, {0.229, 0.3, 0.2}};
  data.random_crop = config::RandomCrop{{56, 48}, 2};
  data.random_flip = true;
  const auto source = std::make_shared<Pictures>();
  LoaderOptions options{.batch = {.train_batch = 64, .micro_batch = 32, .accumulation = 2}};
  options.assembly.compute_dtype = at::kBFloat16;
  options.assembly.pin = pin;
  options.assembly.pictures = picture_transforms(data, *source, {0}, at::kBFloat16);
  return {source, {{0}, {1}}, data, options, {}};
}

// Long enough that a batch whose memory is used again too early is seen in it.
void keep_busy(const at::Tensor& factor, at::Tensor& gemm) {
  for (int i = 0; i < 4; ++i) at::mm_out(gemm, factor, factor);
}

}  // namespace

TEST_CASE("batches that are staged beside the steps are those of the loader", "[gpu][device_batches]") {
  if (!test::has_device()) return;
  const at::Tensor factor = at::ones({4096, 4096}, at::TensorOptions().device(kDevice));
  at::Tensor gemm = at::empty_like(factor);
  BatchLoader expected = loader(/*pin=*/false);
  DeviceBatches batches(loader(/*pin=*/true), kDevice, 1);
  std::vector<at::Tensor> seen, wanted;
  for (int i = 0; i < 24; ++i) {
    const MicroBatch batch = batches.next();
    keep_busy(factor, gemm);
    seen.push_back(batch.inputs.at(0).clone());
    seen.push_back(batch.labels.at(0).clone());
    const MicroBatch own = on_device(expected.next(), at::kCPU);
    wanted.push_back(own.inputs.at(0));
    wanted.push_back(own.labels.at(0));
    CHECK(batches.position() == expected.position());
  }
  for (size_t i = 0; i < seen.size(); ++i) CHECK(seen[i].cpu().equal(wanted[i]));
  CHECK(batches.waited_ms(12) >= 0);
}
