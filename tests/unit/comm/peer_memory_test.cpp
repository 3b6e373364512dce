// Small sums and gathers through memory that the GPUs of a host map, enqueued and out of CUDA graphs.
#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include <algorithm>
#include <cstdio>

#include "unit/comm/device_ranks.hpp"

using namespace dslaunch;
using namespace dslaunch::test;

namespace {

std::unique_ptr<Communicator> open_peers(const RankContext& context) {
  return open_on_device(context, "world", std::chrono::seconds(50), /*uses_peer_memory=*/true);
}

void check_cuda(cudaError_t result) {
  if (result != cudaSuccess) throw std::runtime_error(::cudaGetErrorString(result));
}

// A stream of its own for the calls of this thread, so that they can be captured.
class OwnStream {
 public:
  OwnStream() : stream_(c10::impl::VirtualGuardImpl(c10::kCUDA).getStreamFromGlobalPool(device())), on_(stream_) {}
  cudaStream_t get() const { return static_cast<cudaStream_t>(stream_.native_handle()); }

 private:
  static c10::Device device() {
    int index = 0;
    check_cuda(::cudaGetDevice(&index));
    return {c10::kCUDA, static_cast<c10::DeviceIndex>(index)};
  }
  const c10::Stream stream_;
  const c10::StreamGuard on_;
};

class Graph {
 public:
  template <class Enqueue>
  Graph(cudaStream_t stream, Enqueue enqueue) {
    cudaGraph_t graph = nullptr;
    check_cuda(::cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
    enqueue();
    check_cuda(::cudaStreamEndCapture(stream, &graph));
    check_cuda(::cudaGraphInstantiate(&graph_, graph, 0));
    check_cuda(::cudaGraphDestroy(graph));
  }
  ~Graph() { ::cudaGraphExecDestroy(graph_); }
  Graph(const Graph&) = delete;
  Graph& operator=(const Graph&) = delete;
  void replay(cudaStream_t stream) const { check_cuda(::cudaGraphLaunch(graph_, stream)); }

 private:
  cudaGraphExec_t graph_ = nullptr;
};

// Copies a rank's values into place and sums them, in sizes of both ways; gathers the smallest.
std::string check_graph(const RankContext& context) {
  auto communicator = open_peers(context);
  const OwnStream stream;
  DeviceMemory memory;
  const size_t counts[] = {5, 4096, 300001};
  std::vector<std::unique_ptr<TestBuffer>> own, sums;
  for (const size_t count : counts) {
    own.push_back(std::make_unique<TestBuffer>(memory, DType::kBFloat16, values_of(context.rank, count)));
    sums.push_back(std::make_unique<TestBuffer>(memory, DType::kBFloat16, std::vector<double>(count, 0)));
  }
  const auto size = static_cast<size_t>(context.size);
  TestBuffer gathered(memory, DType::kBFloat16, std::vector<double>(counts[0] * size, 0));
  const auto enqueue = [&] {
    for (size_t i = 0; i < own.size(); ++i) {
      check_cuda(::cudaMemcpyAsync(sums[i]->all().data, own[i]->all().data, counts[i] * 2, cudaMemcpyDeviceToDevice,
                                   stream.get()));
      communicator->all_reduce(sums[i]->all(), ReduceOp::kSum);
    }
    communicator->all_gather(own[0]->all(), gathered.all());
  };
  const auto check = [&]() -> std::string {
    communicator->wait_for_completion();
    for (size_t i = 0; i < own.size(); ++i) {
      const auto values = sums[i]->values();
      for (size_t at = 0; at < values.size(); ++at) {
        if (values[at] != reduced(context.size, at, ReduceOp::kSum)) {
          return fmt::format("sum of {}: element {} is {}", counts[i], at, values[at]);
        }
      }
    }
    const auto values = gathered.values();
    for (size_t at = 0; at < values.size(); ++at) {
      if (values[at] != value_of(static_cast<int>(at / counts[0]), at % counts[0])) {
        return fmt::format("gather: element {} is {}", at, values[at]);
      }
    }
    return "";
  };
  enqueue();
  if (const auto wrong = check(); !wrong.empty()) return "enqueued: " + wrong;
  const Graph graph(stream.get(), enqueue);
  for (int round = 0; round < 50; ++round) {
    if (round % 7 == 3) communicator->all_reduce(sums[0]->all(), ReduceOp::kSum);  // between replays
    graph.replay(stream.get());
  }
  if (const auto wrong = check(); !wrong.empty()) return "replayed: " + wrong;
  const bool is_connected = communicator->small_sums() == "through memory that the GPUs map";
  return is_connected ? "" : communicator->small_sums();
}

// Replays a graph of sums without end; what ends the wait for one of them.
std::string lose_a_peer_in_a_graph(const RankContext& context) {
  auto communicator = open_peers(context);
  const OwnStream stream;
  DeviceMemory memory;
  TestBuffer buffer(memory, DType::kBFloat16, std::vector<double>(4096, 0.0));
  communicator->all_reduce(buffer.all(), ReduceOp::kSum);
  communicator->wait_for_completion();
  const Graph graph(stream.get(), [&] {
    for (int i = 0; i < 64; ++i) communicator->all_reduce(buffer.all(), ReduceOp::kSum);
  });
  cudaEvent_t done = nullptr;
  check_cuda(::cudaEventCreateWithFlags(&done, cudaEventDisableTiming));
  try {
    for (int round = 0; round < 10000000; ++round) {
      if (round == 3) context.announce();
      graph.replay(stream.get());
      check_cuda(::cudaEventRecord(done, stream.get()));
      communicator->wait_until([&] { return ::cudaEventQuery(done) == cudaSuccess; });
    }
  } catch (const PeerError& error) {
    return fmt::format("{:.6f} {} | {}", now_seconds(), error.what(), error.what());
  }
  return "nobody died";
}

// Microseconds of one of `repeats` sums in a graph.
double time_of(Communicator& communicator, const Buffer& buffer, cudaStream_t stream) {
  constexpr int kRepeats = 200;
  communicator.all_reduce(buffer, ReduceOp::kSum);
  communicator.wait_for_completion();
  const Graph graph(stream, [&] {
    for (int i = 0; i < kRepeats; ++i) communicator.all_reduce(buffer, ReduceOp::kSum);
  });
  cudaEvent_t begin = nullptr, end = nullptr;
  check_cuda(::cudaEventCreate(&begin));
  check_cuda(::cudaEventCreate(&end));
  std::vector<float> times;
  for (int round = 0; round < 9; ++round) {
    communicator.barrier();
    check_cuda(::cudaEventRecord(begin, stream));
    graph.replay(stream);
    check_cuda(::cudaEventRecord(end, stream));
    communicator.wait_until([&] { return ::cudaEventQuery(end) == cudaSuccess; });
    float ms = 0;
    check_cuda(::cudaEventElapsedTime(&ms, begin, end));
    times.push_back(1000 * ms / kRepeats);
  }
  std::sort(times.begin(), times.end());
  return times[times.size() / 2];
}

}  // namespace

TEST_CASE("a group that maps the memory of its GPUs keeps the contract", "[comm][peers][gpu2]") {
  for (int size : {2, 4}) {
    if (!enough_gpus(size)) continue;
    check_all_well(run_ranks(size, [](const RankContext& context) {
      auto communicator = open_peers(context);
      DeviceMemory memory;
      return check_contract(*communicator, memory);
    }));
  }
}

TEST_CASE("sums through mapped memory are right out of a graph", "[comm][peers][gpu2]") {
  for (int size : {2, 4}) {
    if (enough_gpus(size)) check_all_well(run_ranks(size, check_graph));
  }
}

TEST_CASE("the death of a peer ends sums through mapped memory in under a second", "[comm][peers][gpu2]") {
  for (int size : {2, 4}) {
    if (!enough_gpus(size)) continue;
    check_death(run_ranks(size, lose_a_peer_in_a_graph, 1), 1);
    check_death(run_ranks(
                    size,
                    [](const RankContext& context) {
                      auto communicator = open_peers(context);
                      DeviceMemory memory;
                      return wait_for_the_dead(context, 1, *communicator, memory);
                    },
                    1),
                1);
  }
}

// test_comm_nccl [timing]
TEST_CASE("times of sums in a graph beside NCCL's", "[.][timing]") {
  for (int size : {2, 4, 8}) {
    if (!enough_gpus(size)) continue;
    check_all_well(run_ranks(size, [](const RankContext& context) -> std::string {
      auto peers = open_peers(context);
      auto nccl = open_on_device(context, "nccl");
      const OwnStream stream;
      DeviceMemory memory;
      for (const size_t kib : {8, 16, 32, 64, 128, 256, 512, 1024, 2048}) {
        void* data = memory.allocate(kib << 10);
        check_cuda(::cudaMemset(data, 0, kib << 10));
        const Buffer buffer{data, kib << 9, DType::kBFloat16};
        const double own = time_of(*peers, buffer, stream.get());
        const double other = time_of(*nccl, buffer, stream.get());
        memory.release(data);
        if (context.rank > 0) continue;
        std::printf("%d GPUs, %5zu KiB: %7.2f us, NCCL %7.2f us\n", context.size, kib, own, other);
        std::fflush(stdout);
      }
      return "";
    }));
  }
}
