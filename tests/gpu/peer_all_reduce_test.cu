// Sums and gathers over the memory of several ranks, whose kernels run side by side on one GPU; the program runs alone.
#include "kernels/peer_all_reduce.h"

#include <memory>

#include "kernel_checks.cuh"

namespace dslaunch::kernels {
namespace {

constexpr size_t kWords = 64;  // behind the memory: the progress of a rank

class Ranks {
 public:
  explicit Ranks(int size) : size_(size) {
    const size_t bytes = peer_memory_bytes(size);
    void* word = nullptr;
    require(cudaHostAlloc(&word, sizeof(uint32_t), cudaHostAllocMapped), "cudaHostAlloc");
    aborted_ = static_cast<uint32_t*>(word);
    *aborted_ = 0;
    for (int rank = 0; rank < size; ++rank) {
      require(cudaMalloc(&memory_[rank], bytes + kWords * 4), "cudaMalloc");
      require(cudaMemset(memory_[rank], 0, bytes + kWords * 4), "cudaMemset");
      require(cudaStreamCreateWithFlags(&streams_[rank], cudaStreamNonBlocking), "cudaStreamCreate");
    }
  }
  ~Ranks() {
    for (int rank = 0; rank < size_; ++rank) {
      cudaFree(memory_[rank]);
      cudaStreamDestroy(streams_[rank]);
    }
    cudaFreeHost(aborted_);
  }
  Ranks(const Ranks&) = delete;
  Ranks& operator=(const Ranks&) = delete;

  PeerGroup group(int rank) const {
    PeerGroup out;
    for (int each = 0; each < size_; ++each) out.memory[each] = memory_[each];
    out.rank = rank;
    out.size = size_;
    out.progress = reinterpret_cast<uint32_t*>(static_cast<char*>(memory_[rank]) + peer_memory_bytes(size_));
    out.aborted = aborted_;
    return out;
  }
  cudaStream_t stream(int rank) const { return streams_[rank]; }
  void abort() { *static_cast<volatile uint32_t*>(aborted_) = 1; }
  int size() const { return size_; }

 private:
  const int size_;
  void* memory_[kMaxPeers] = {};
  cudaStream_t streams_[kMaxPeers] = {};
  uint32_t* aborted_ = nullptr;
};

// The kernel's own addition: fp32 in the order of the ranks, rounded once.
template <class T>
std::vector<T> sum_of(const std::vector<std::vector<T>>& values, ElementType type) {
  std::vector<T> out(values[0].size());
  for (size_t i = 0; i < out.size(); ++i) {
    float sum = 0;
    for (const auto& own : values) {
      if constexpr (sizeof(T) == 4) {
        sum += own[i];
      } else {
        sum += widened(own[i], type);
      }
    }
    if constexpr (sizeof(T) == 4) {
      out[i] = sum;
    } else {
      out[i] = rounded(sum, type);
    }
  }
  return out;
}

template <class T>
std::vector<T> values_of(int rank, size_t count, uint32_t seed, ElementType type) {
  const auto floats = uniform(count, seed + static_cast<uint32_t>(rank), -2, 2);
  if constexpr (sizeof(T) == 4) {
    return floats;
  } else {
    std::vector<T> out;
    for (const float value : floats) out.push_back(rounded(value, type));
    return out;
  }
}

template <class T>
void test_sum(const Ranks& ranks, size_t count, ElementType type, size_t offset, uint32_t seed) {
  const std::string name = "sum of " + std::to_string(count) + " elements of " + std::to_string(sizeof(T)) +
                           " bytes over " + std::to_string(ranks.size()) + " ranks";
  std::vector<std::vector<T>> values;
  std::vector<std::unique_ptr<DeviceArray<T>>> arrays;
  for (int rank = 0; rank < ranks.size(); ++rank) {
    values.push_back(values_of<T>(rank, count, seed, type));
    arrays.push_back(std::make_unique<DeviceArray<T>>(values.back(), rank == 0 ? offset : 0));
  }
  for (int rank = 0; rank < ranks.size(); ++rank) {
    T* data = arrays[static_cast<size_t>(rank)]->data();
    require(launch_peer_all_reduce(ranks.group(rank), data, data, count, type, ranks.stream(rank)), name.c_str());
  }
  require(cudaDeviceSynchronize(), name.c_str());
  const auto expected = sum_of(values, type);
  for (auto& array : arrays) check(same_bits(array->download(name), expected), name);
}

void test_gather(const Ranks& ranks, size_t bytes, uint32_t seed) {
  const std::string name = "gather of " + std::to_string(bytes) + " bytes";
  std::vector<uint8_t> expected;
  std::vector<std::unique_ptr<DeviceArray<uint8_t>>> own, out;
  for (int rank = 0; rank < ranks.size(); ++rank) {
    std::vector<uint8_t> values;
    for (size_t i = 0; i < bytes; ++i) values.push_back(static_cast<uint8_t>(seed + i * 7 + 31 * rank));
    expected.insert(expected.end(), values.begin(), values.end());
    own.push_back(std::make_unique<DeviceArray<uint8_t>>(values, 0));
    out.push_back(
        std::make_unique<DeviceArray<uint8_t>>(std::vector<uint8_t>(bytes * static_cast<size_t>(ranks.size())), 0));
  }
  for (int rank = 0; rank < ranks.size(); ++rank) {
    const auto at = static_cast<size_t>(rank);
    require(launch_peer_all_gather(ranks.group(rank), own[at]->data(), out[at]->data(), bytes, ranks.stream(rank)),
            name.c_str());
  }
  require(cudaDeviceSynchronize(), name.c_str());
  for (auto& array : out) check(same_bits(array->download(name), expected), name);
}

// A rank that never comes: the others end once the host's word says so.
void test_abort() {
  Ranks ranks(2);
  DeviceArray<float> small(std::vector<float>(100, 1), 0), large(std::vector<float>(300000, 1), 0);
  for (auto* array : {&small, &large}) {
    const size_t count = array == &small ? 100 : 300000;
    require(launch_peer_all_reduce(ranks.group(0), array->data(), array->data(), count, ElementType::kFloat32,
                                   ranks.stream(0)),
            "a sum without the other rank");
  }
  check(cudaStreamQuery(ranks.stream(0)) == cudaErrorNotReady, "a sum without the other rank waits");
  ranks.abort();
  require(cudaDeviceSynchronize(), "sums after an abort");
}

}  // namespace

void test_peer_all_reduce() {
  for (const int size : {1, 2, 3, 4}) {
    const Ranks ranks(size);
    uint32_t seed = 1;
    for (const size_t count : {size_t{1}, size_t{3}, size_t{4096}, size_t{32771}, size_t{65536}, size_t{131072},
                               size_t{200003}, size_t{524288}}) {
      for (const size_t offset : {size_t{0}, size_t{1}}) {
        test_sum<float>(ranks, count, ElementType::kFloat32, offset, ++seed);
        test_sum<uint16_t>(ranks, count, ElementType::kBFloat16, offset, ++seed);
        test_sum<uint16_t>(ranks, 2 * count, ElementType::kFloat16, offset, ++seed);
        test_gather(ranks, std::min(count, kMaxOneShotBytes - 1) + offset, ++seed);
      }
    }
  }
  test_abort();
}

}  // namespace dslaunch::kernels
