// A group of size one: every collective is a copy, and mostly not even that. On a device, a copy goes through the CUDA
// module, in order with the current stream.
#include <cstring>

#include "comm/abort_flag.hpp"
#include "comm/backends.hpp"
#include "comm/collective.hpp"
#include "comm/modules.hpp"

namespace dslaunch::comm {

namespace {

class SingleCommunicator final : public Communicator {
 public:
  SingleCommunicator(const CommunicatorOptions& options, rendezvous::Store& store)
      : options_(options), abort_flag_(watch_peers(store)) {}

  int rank() const override { return 0; }
  int size() const override { return 1; }

  void all_reduce(Buffer buffer, ReduceOp) override {
    abort_flag_->check("all_reduce");
    check_buffer(buffer);
  }
  void reduce_scatter(ConstBuffer in, Buffer out, ReduceOp) override {
    abort_flag_->check("reduce_scatter");
    check_reduce_scatter(in, out, 1);
    copy(in, out);
  }
  void all_gather(ConstBuffer in, Buffer out) override {
    abort_flag_->check("all_gather");
    check_all_gather(in, out, 1);
    copy(in, out);
  }
  void all_to_all(ConstBuffer in, Buffer out) override {
    abort_flag_->check("all_to_all");
    check_all_to_all(in, out, 1);
    copy(in, out);
  }
  void broadcast(Buffer buffer, int root) override {
    abort_flag_->check("broadcast");
    check_buffer(buffer);
    check_member(root, 1);
  }
  // A group of one rank has no other member.
  void exchange(std::span<const Outgoing> sends, std::span<const Incoming> receives) override {
    abort_flag_->check("exchange");
    check_exchange(sends, receives, 0, 1);
  }
  void barrier() override { wait_for_completion(); }

  void wait_for_completion() override {
    abort_flag_->check("wait for the device");
    if (options_.device < 0) return;
    using Wait = void (*)(int device);
    cuda_module().function<Wait>("dslaunch_wait_for_device")(options_.device);
  }
  void wait_until(const std::function<bool()>& is_reached) override {
    abort_flag_->wait_until(is_reached, "wait for the device");
  }
  void abort(const std::string& reason) override { abort_flag_->trip(reason); }

 private:
  void copy(const ConstBuffer& in, const Buffer& out) const {
    if (in.data == out.data || in.count == 0) return;
    if (options_.device < 0) {
      std::memcpy(out.data, in.data, num_bytes_in(in));
      return;
    }
    using Copy = void (*)(void* to, const void* from, size_t bytes, int device);
    cuda_module().function<Copy>("dslaunch_copy_on_device")(out.data, in.data, num_bytes_in(in), options_.device);
  }

  const CommunicatorOptions options_;
  const std::shared_ptr<AbortFlag> abort_flag_;
};

}  // namespace

std::unique_ptr<Communicator> make_single(const CommunicatorOptions& options, rendezvous::Store& store) {
  return std::make_unique<SingleCommunicator>(options, store);
}

}  // namespace dslaunch::comm
