// One shot: each rank writes its array into the memory of all others, in packets of 8 bytes and twice the number of the
// launch (the epoch), which travel in one store: who reads the epoch has the data, without a fence or a barrier. Two
// shots: each rank sums a slice of all arrays, and reads the other slices' sums, behind barriers of flags.
//
// Memory is used by turns of two launches. A rank writes to the memory of launch n again in launch n + 2: it has then
// seen packets or flags of launch n + 1 of all ranks, which have therefore ended launch n.
#include <algorithm>

#include "kernels/eight_elements.cuh"
#include "kernels/peer_all_reduce.h"
#include "kernels/with_type.cuh"

namespace dslaunch::kernels {
namespace {

constexpr int kThreads = 256;
constexpr unsigned kMaxBlocks = 64;
constexpr size_t kPayload = 8;  // bytes of a packet
constexpr size_t kPackets = kMaxOneShotBytes / kPayload;
constexpr size_t kRounding = kMaxPeers * kEach * sizeof(float);  // of slices to eight elements
constexpr int kSpins = 1024;                                     // between looks at the host's word

// Of a rank's memory, in bytes.
struct Layout {
  size_t ranks;
  __host__ __device__ size_t packets(uint32_t turn, int source) const {
    return (turn * ranks + static_cast<size_t>(source)) * kPackets * sizeof(uint4);
  }
  __host__ __device__ size_t whole(uint32_t turn) const {
    return packets(2, 0) + turn * (kMaxTwoShotBytes + kRounding);
  }
  __host__ __device__ size_t sums(uint32_t turn) const { return whole(2) + turn * (kMaxTwoShotBytes + kRounding); }
  __host__ __device__ size_t flag(unsigned barrier, unsigned block, int source) const {
    return sums(2) + ((barrier * kMaxBlocks + block) * kMaxPeers + static_cast<size_t>(source)) * sizeof(uint32_t);
  }
  __host__ __device__ size_t end() const { return flag(2, 0, 0); }
};

__device__ inline char* memory_of(const PeerGroup& group, int rank, size_t at) {
  return static_cast<char*>(group.memory[rank]) + at;
}

__device__ inline bool is_aborted(const PeerGroup& group) {
  return *static_cast<const volatile uint32_t*>(group.aborted) != 0;
}

__device__ inline void store_packet(void* to, uint2 payload, uint32_t epoch) {
  asm volatile("st.volatile.global.v4.u32 [%0], {%1, %2, %3, %4};" ::"l"(to), "r"(payload.x), "r"(epoch),
               "r"(payload.y), "r"(epoch)
               : "memory");
}

__device__ inline uint2 wait_for_packet(const PeerGroup& group, const void* from, uint32_t epoch) {
  uint32_t x = 0, y = 0, first = 0, second = 0;
  for (int spin = 1;; ++spin) {
    asm volatile("ld.volatile.global.v4.u32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(x), "=r"(first), "=r"(y), "=r"(second)
                 : "l"(from)
                 : "memory");
    if (first == epoch && second == epoch) break;
    if (spin % kSpins == 0 && is_aborted(group)) break;
  }
  return make_uint2(x, y);
}

// Eight bytes of an array of `bytes`, whose elements have the size of Unit; zeros past its end.
template <class Unit>
__device__ inline uint2 load_payload(const void* array, size_t packet, size_t bytes, bool wide) {
  const size_t at = packet * kPayload;
  if (wide && at + kPayload <= bytes) return static_cast<const uint2*>(array)[packet];
  uint64_t out = 0;
  const auto* unit = reinterpret_cast<const Unit*>(static_cast<const char*>(array) + at);
  for (size_t i = 0; i < kPayload / sizeof(Unit) && at + (i + 1) * sizeof(Unit) <= bytes; ++i) {
    out |= static_cast<uint64_t>(unit[i]) << (8 * sizeof(Unit) * i);
  }
  return make_uint2(static_cast<uint32_t>(out), static_cast<uint32_t>(out >> 32));
}

template <class Unit>
__device__ inline void store_payload(void* array, size_t packet, size_t bytes, bool wide, uint2 payload) {
  const size_t at = packet * kPayload;
  if (wide && at + kPayload <= bytes) {
    static_cast<uint2*>(array)[packet] = payload;
    return;
  }
  const uint64_t all = payload.x | static_cast<uint64_t>(payload.y) << 32;
  auto* unit = reinterpret_cast<Unit*>(static_cast<char*>(array) + at);
  for (size_t i = 0; i < kPayload / sizeof(Unit) && at + (i + 1) * sizeof(Unit) <= bytes; ++i) {
    unit[i] = static_cast<Unit>(all >> (8 * sizeof(Unit) * i));
  }
}

// The number of this launch: one more than the last one's, from 1 on.
__device__ inline uint32_t begin_launch(const PeerGroup& group) {
  return *static_cast<const volatile uint32_t*>(group.progress) + 1;
}

// All blocks have read the number of the last launch once all are here.
__device__ inline void end_launch(const PeerGroup& group, uint32_t epoch) {
  __syncthreads();
  if (threadIdx.x != 0 || atomicAdd(group.progress + 1, 1U) + 1 != gridDim.x) return;
  group.progress[1] = 0;
  group.progress[0] = epoch;
}

// Calls of(packet) for the packets of this thread.
template <class Of>
__device__ inline void for_each_packet(size_t bytes, Of of) {
  const size_t count = (bytes + kPayload - 1) / kPayload;
  for (size_t i = blockIdx.x * static_cast<size_t>(kThreads) + threadIdx.x; i < count; i += gridDim.x * kThreads) of(i);
}

template <class Unit>
__device__ inline void send_packets(const PeerGroup& group, const void* in, size_t bytes, bool wide, uint32_t epoch) {
  const size_t own = Layout{static_cast<size_t>(group.size)}.packets(epoch % 2, group.rank);
  for_each_packet(bytes, [&](size_t packet) {
    const uint2 payload = load_payload<Unit>(in, packet, bytes, wide);
    for (int step = 1; step < group.size; ++step) {
      const int to = (group.rank + step) % group.size;
      store_packet(memory_of(group, to, own + packet * sizeof(uint4)), payload, epoch);
    }
  });
}

__device__ inline uint2 receive_packet(const PeerGroup& group, int source, size_t packet, uint32_t epoch) {
  const size_t at = Layout{static_cast<size_t>(group.size)}.packets(epoch % 2, source) + packet * sizeof(uint4);
  return wait_for_packet(group, memory_of(group, group.rank, at), epoch);
}

template <ElementType kType>
using UnitOf = std::conditional_t<kType == ElementType::kFloat32, uint32_t, uint16_t>;

template <ElementType kType>
__device__ inline void add_payload(float (&sum)[4], uint2 payload) {
  if constexpr (kType == ElementType::kFloat32) {
    sum[0] += __uint_as_float(payload.x);
    sum[1] += __uint_as_float(payload.y);
  } else {
    sum[0] += float_of<kType>(payload.x);
    sum[1] += float_of<kType>(payload.x >> 16);
    sum[2] += float_of<kType>(payload.y);
    sum[3] += float_of<kType>(payload.y >> 16);
  }
}

template <ElementType kType>
__device__ inline uint2 payload_of(const float (&sum)[4]) {
  if constexpr (kType == ElementType::kFloat32) {
    return make_uint2(__float_as_uint(sum[0]), __float_as_uint(sum[1]));
  } else {
    return make_uint2(pack_low_precision<kType>(sum[0], sum[1]), pack_low_precision<kType>(sum[2], sum[3]));
  }
}

template <ElementType kType>
__global__ void __launch_bounds__(kThreads)
    sum_in_one_shot(const __grid_constant__ PeerGroup group, const void* in, void* out, size_t bytes) {
  using Unit = UnitOf<kType>;
  const uint32_t epoch = begin_launch(group);
  const bool wide = reinterpret_cast<uintptr_t>(in) % kPayload == 0 && reinterpret_cast<uintptr_t>(out) % kPayload == 0;
  send_packets<Unit>(group, in, bytes, wide, epoch);
  for_each_packet(bytes, [&](size_t packet) {
    const uint2 own = load_payload<Unit>(in, packet, bytes, wide);
    float sum[4] = {};
    for (int source = 0; source < group.size; ++source) {
      add_payload<kType>(sum, source == group.rank ? own : receive_packet(group, source, packet, epoch));
    }
    store_payload<Unit>(out, packet, bytes, wide, payload_of<kType>(sum));
  });
  end_launch(group, epoch);
}

__global__ void __launch_bounds__(kThreads)
    gather_in_one_shot(const __grid_constant__ PeerGroup group, const void* in, void* out, size_t bytes) {
  const uint32_t epoch = begin_launch(group);
  const bool wide = bytes % kPayload == 0 && reinterpret_cast<uintptr_t>(in) % kPayload == 0 &&
                    reinterpret_cast<uintptr_t>(out) % kPayload == 0;
  send_packets<uint8_t>(group, in, bytes, wide, epoch);
  for_each_packet(bytes, [&](size_t packet) {
    for (int source = 0; source < group.size; ++source) {
      const uint2 payload = source == group.rank ? load_payload<uint8_t>(in, packet, bytes, wide)
                                                 : receive_packet(group, source, packet, epoch);
      store_payload<uint8_t>(static_cast<char*>(out) + static_cast<size_t>(source) * bytes, packet, bytes, wide,
                             payload);
    }
  });
  end_launch(group, epoch);
}

// The blocks of the same number of all ranks wait for each other; what their threads wrote before is seen behind it.
__device__ inline void wait_for_blocks(const PeerGroup& group, unsigned barrier, uint32_t epoch) {
  __syncthreads();
  const int peer = static_cast<int>(threadIdx.x);
  if (peer < group.size) {
    const Layout layout{static_cast<size_t>(group.size)};
    const void* theirs = memory_of(group, peer, layout.flag(barrier, blockIdx.x, group.rank));
    const void* own = memory_of(group, group.rank, layout.flag(barrier, blockIdx.x, peer));
    asm volatile("st.release.sys.global.u32 [%0], %1;" ::"l"(theirs), "r"(epoch) : "memory");
    uint32_t seen = 0;
    for (int spin = 1;; ++spin) {
      asm volatile("ld.acquire.sys.global.u32 %0, [%1];" : "=r"(seen) : "l"(own) : "memory");
      if (static_cast<int32_t>(seen - epoch) >= 0) break;  // the peer may have reached the next launch
      if (spin % kSpins == 0 && is_aborted(group)) break;
    }
  }
  __syncthreads();
}

template <ElementType kType>
__global__ void __launch_bounds__(kThreads)
    sum_in_two_shots(const __grid_constant__ PeerGroup group, const void* in, void* out, size_t count, size_t slice) {
  const uint32_t epoch = begin_launch(group);
  const Layout layout{static_cast<size_t>(group.size)};
  const bool wide = on_16_bytes(in) && on_16_bytes(out);
  const size_t whole = layout.whole(epoch % 2), sums = layout.sums(epoch % 2);
  const size_t first = (blockIdx.x * static_cast<size_t>(kThreads) + threadIdx.x) * kEach;
  const size_t step = static_cast<size_t>(gridDim.x) * kThreads * kEach;
  float values[kEach];
  for (int owner = 0; owner < group.size; ++owner) {
    const size_t begin = static_cast<size_t>(owner) * slice;
    for (size_t i = first; i < slice; i += step) {
      load8<kType>(in, begin + i, count, wide, values);
      store8_wide<kType>(memory_of(group, group.rank, whole), begin + i, values);
    }
  }
  wait_for_blocks(group, 0, epoch);
  for (size_t i = first; i < slice; i += step) {
    const size_t at = static_cast<size_t>(group.rank) * slice + i;
    float sum[kEach] = {};
    for (int source = 0; source < group.size; ++source) {
      load8_wide<kType>(memory_of(group, source, whole), at, values);
#pragma unroll
      for (int k = 0; k < kEach; ++k) sum[k] += values[k];
    }
    store8_wide<kType>(memory_of(group, group.rank, sums), i, sum);
    store8<kType>(out, at, count, wide, sum);
  }
  wait_for_blocks(group, 1, epoch);
  for (int shift = 1; shift < group.size; ++shift) {
    const int owner = (group.rank + shift) % group.size;
    for (size_t i = first; i < slice; i += step) {
      load8_wide<kType>(memory_of(group, owner, sums), i, values);
      store8<kType>(out, static_cast<size_t>(owner) * slice + i, count, wide, values);
    }
  }
  end_launch(group, epoch);
}

unsigned blocks_for(size_t items) {
  return static_cast<unsigned>(std::min<size_t>(kMaxBlocks, (items + kThreads - 1) / kThreads));
}

size_t packets_in(size_t bytes) {
  return (bytes + kPayload - 1) / kPayload;
}

}  // namespace

size_t peer_memory_bytes(int size) {
  return Layout{static_cast<size_t>(size)}.end();
}

cudaError_t launch_peer_all_reduce(const PeerGroup& group, const void* in, void* out, size_t count, ElementType type,
                                   cudaStream_t stream) {
  if (group.size < 1 || group.size > kMaxPeers || count == 0) return cudaErrorInvalidValue;
  return with_type(type, [&](auto kind) {
    constexpr ElementType kType = decltype(kind)::value;
    const size_t bytes = count * kBytesOf<kType>;
    if (bytes > kMaxTwoShotBytes) return cudaErrorInvalidValue;
    if (bytes <= kMaxOneShotBytes / static_cast<size_t>(std::max(1, group.size / 2))) {
      sum_in_one_shot<kType><<<blocks_for(packets_in(bytes)), kThreads, 0, stream>>>(group, in, out, bytes);
    } else {
      const size_t ranks = static_cast<size_t>(group.size);
      const size_t slice = (count + ranks * kEach - 1) / (ranks * kEach) * kEach;
      sum_in_two_shots<kType><<<blocks_for(slice / kEach), kThreads, 0, stream>>>(group, in, out, count, slice);
    }
    return cudaGetLastError();
  });
}

cudaError_t launch_peer_all_gather(const PeerGroup& group, const void* in, void* out, size_t bytes,
                                   cudaStream_t stream) {
  if (group.size < 1 || group.size > kMaxPeers || bytes == 0 || bytes > kMaxOneShotBytes) return cudaErrorInvalidValue;
  gather_in_one_shot<<<blocks_for(packets_in(bytes)), kThreads, 0, stream>>>(group, in, out, bytes);
  return cudaGetLastError();
}

}  // namespace dslaunch::kernels
