// The optimizers that exchange one bit for each element, on CUDA tensors: 50 steps of two ranks, threads that share a
// GPU, against the numbers of DeepSpeed's classes that the host is tested with. Without a CUDA device it is skipped.
#include <ATen/ATen.h>

#include <catch2/catch.hpp>
#include <cmath>

#include "support/cuda_device.hpp"
#include "unit/runtime/optim/one_bit_replica.hpp"

namespace {

using namespace dslaunch;

// Messages of bytes in device memory, through the host.
class DeviceBytes : public test::ThreadCommunicator {
 public:
  using ThreadCommunicator::ThreadCommunicator;
  void all_to_all(comm::ConstBuffer in, comm::Buffer out) override {
    through_host(in, out, [this](auto from, auto to) { ThreadCommunicator::all_to_all(from, to); });
  }
  void all_gather(comm::ConstBuffer in, comm::Buffer out) override {
    through_host(in, out, [this](auto from, auto to) { ThreadCommunicator::all_gather(from, to); });
  }

 private:
  static at::Tensor on_device(const void* data, size_t count) {
    return at::from_blob(const_cast<void*>(data), {static_cast<int64_t>(count)},
                         at::TensorOptions().dtype(at::kByte).device(at::kCUDA, 0));
  }
  template <class Collective>
  static void through_host(comm::ConstBuffer in, comm::Buffer out, const Collective& collective) {
    const at::Tensor sent = on_device(in.data, in.count).cpu();
    const at::Tensor received = at::empty({static_cast<int64_t>(out.count)}, at::kByte);
    collective(comm::ConstBuffer{sent.const_data_ptr(), in.count, in.dtype},
               comm::Buffer{received.mutable_data_ptr(), out.count, out.dtype});
    on_device(out.data, out.count).copy_(received);
  }
};

}  // namespace

TEST_CASE("50 steps of the 1-bit optimizers on the device end where DeepSpeed's do", "[gpu][one_bit]") {
  if (!test::has_device()) return;
  const auto file = test::one_bit_numbers();
  const test::NumberedModel model = test::make_numbered_model(file["parameters"]);
  for (const auto& entry : file["cases"]) {
    if (entry["ranks"] != 2) continue;
    const test::OneBitJob job(model, entry["config"]);
    test::on_ranks<DeviceBytes>(2, [&](DeviceBytes& communicator) {
      test::OneBitReplica replica(job, communicator, at::Device(at::kCUDA, 0));
      for (int64_t step = 1; step <= 50; ++step) {
        replica.step(step);
        const auto found = entry["values"].find(std::to_string(step));
        if (found == entry["values"].end() || communicator.rank() != 1) continue;
        const auto expected = at::tensor(found->get<std::vector<double>>(), at::kDouble);
        const double difference = test::worst_difference(model, replica.masters(), expected);
        if (difference > 16.0 * std::sqrt(static_cast<double>(step)) * std::pow(2.0, -24)) {
          FAIL_CHECK(entry["config"].dump() << ", step " << step << ": " << difference);
        }
      }
    });
  }
}
