// What every backend must do, as functions over an open communicator. They return an empty text when all was well,
// since they run in forked ranks. Expected values come from a closed formula of rank and position: small whole numbers,
// exact in every type and in every order of additions.
#pragma once
#include <atomic>
#include <cstring>
#include <deque>
#include <functional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/error.hpp"
#include "base/format.hpp"
#include "comm/communicator.hpp"
#include "support/processor_half.hpp"
#include "unit/comm/process_group.hpp"

namespace dslaunch::test {

using comm::Buffer;
using comm::Communicator;
using comm::ConstBuffer;
using comm::DType;
using comm::ReduceOp;

// Where a backend's buffers live.
class Memory {
 public:
  virtual ~Memory() = default;
  virtual void* allocate(size_t bytes) = 0;
  virtual void release(void* data) = 0;
  virtual void write(void* to, const void* from, size_t bytes) = 0;
  virtual void read(void* to, const void* from, size_t bytes) = 0;
};

class HostMemory final : public Memory {
 public:
  void* allocate(size_t bytes) override { return ::operator new(bytes); }
  void release(void* data) override { ::operator delete(data); }
  void write(void* to, const void* from, size_t bytes) override { std::memcpy(to, from, bytes); }
  void read(void* to, const void* from, size_t bytes) override { std::memcpy(to, from, bytes); }
};

inline std::vector<char> encode(const std::vector<double>& values, DType dtype) {
  std::vector<char> out(values.size() * comm::size_of(dtype));
  char* end = out.data();
  auto put = [&](auto value) {
    std::memcpy(end, &value, sizeof value);
    end += sizeof value;
  };
  for (double value : values) {
    switch (dtype) {
      case DType::kFloat32:
        put(static_cast<float>(value));
        break;
      case DType::kFloat16:
        put(test::half_bits(static_cast<float>(value)));  // exact for the numbers used here
        break;
      case DType::kInt64:
        put(static_cast<int64_t>(value));
        break;
      case DType::kUInt8:
        put(static_cast<uint8_t>(value));
        break;
      case DType::kBFloat16: {
        float wide = static_cast<float>(value);
        uint32_t bits;
        std::memcpy(&bits, &wide, 4);
        put(static_cast<uint16_t>(bits >> 16));  // exact for the numbers used here
        break;
      }
    }
  }
  return out;
}

inline double decode(const char* element, DType dtype) {
  auto get = [&](auto value) {
    std::memcpy(&value, element, sizeof value);
    return value;
  };
  switch (dtype) {
    case DType::kFloat32:
      return get(float{});
    case DType::kFloat16:
      return test::half_value(get(uint16_t{}));
    case DType::kInt64:
      return static_cast<double>(get(int64_t{}));
    case DType::kUInt8:
      return get(uint8_t{});
    case DType::kBFloat16: {
      uint32_t bits = static_cast<uint32_t>(get(uint16_t{})) << 16;
      float wide;
      std::memcpy(&wide, &bits, 4);
      return wide;
    }
  }
  return 0;
}

// `count` elements that begin one element into their memory, so that no vector boundary is met.
class TestBuffer {
 public:
  TestBuffer(Memory& memory, DType dtype, size_t count) : memory_(memory), dtype_(dtype), count_(count) {
    base_ = memory.allocate((count + 1) * comm::size_of(dtype));
    data_ = static_cast<char*>(base_) + comm::size_of(dtype);
  }
  TestBuffer(Memory& memory, DType dtype, const std::vector<double>& values)
      : TestBuffer(memory, dtype, values.size()) {
    auto bytes = encode(values, dtype);
    if (!bytes.empty()) memory.write(data_, bytes.data(), bytes.size());
  }
  ~TestBuffer() { memory_.release(base_); }
  TestBuffer(const TestBuffer&) = delete;
  TestBuffer& operator=(const TestBuffer&) = delete;

  Buffer all() const { return {count_ ? data_ : nullptr, count_, dtype_}; }
  Buffer part(size_t begin, size_t count) const {
    return {count ? data_ + begin * comm::size_of(dtype_) : nullptr, count, dtype_};
  }
  std::vector<double> values() const {
    size_t width = comm::size_of(dtype_);
    std::vector<char> bytes(count_ * width);
    if (count_) memory_.read(bytes.data(), data_, bytes.size());
    std::vector<double> out(count_);
    for (size_t i = 0; i < count_; ++i) out[i] = decode(bytes.data() + i * width, dtype_);
    return out;
  }

 private:
  Memory& memory_;
  const DType dtype_;
  const size_t count_;
  void* base_ = nullptr;
  char* data_ = nullptr;
};

inline double value_of(int rank, size_t i) {
  return static_cast<double>((i * 7 + static_cast<size_t>(rank) * 3) % 13);
}

inline std::vector<double> values_of(int rank, size_t count) {
  std::vector<double> out(count);
  for (size_t i = 0; i < count; ++i) out[i] = value_of(rank, i);
  return out;
}

inline double reduced(int size, size_t i, ReduceOp op) {
  double out = 0;
  for (int rank = 0; rank < size; ++rank) {
    double value = value_of(rank, i);
    out = op == ReduceOp::kSum ? out + value : std::max(out, value);
  }
  return out;
}

template <class Expected>
std::string compare(const std::string& what, const std::vector<double>& got, Expected&& expected) {
  for (size_t i = 0; i < got.size(); ++i) {
    if (got[i] != expected(i)) return fmt::format("{}: element {} is {}, not {}\n", what, i, got[i], expected(i));
  }
  return "";
}

struct ContractCase {
  Communicator& communicator;
  Memory& memory;
  DType dtype;
  size_t count;
  std::string where() const { return fmt::format("dtype {} count {}", static_cast<int>(dtype), count); }
};

inline std::string check_all_reduce(const ContractCase& it) {
  std::string out;
  int size = it.communicator.size();
  for (auto op : {ReduceOp::kSum, ReduceOp::kMax}) {
    TestBuffer buffer(it.memory, it.dtype, values_of(it.communicator.rank(), it.count));
    it.communicator.all_reduce(buffer.all(), op);
    it.communicator.wait_for_completion();
    out += compare("all_reduce " + it.where(), buffer.values(), [&](size_t i) { return reduced(size, i, op); });
  }
  return out;
}

inline std::string check_reduce_scatter(const ContractCase& it) {
  std::string out;
  int size = it.communicator.size();
  auto rank = static_cast<size_t>(it.communicator.rank());
  for (auto op : {ReduceOp::kSum, ReduceOp::kMax}) {
    TestBuffer in(it.memory, it.dtype, values_of(it.communicator.rank(), it.count * static_cast<size_t>(size)));
    TestBuffer apart(it.memory, it.dtype, it.count);
    it.communicator.reduce_scatter(in.all(), apart.all(), op);
    it.communicator.wait_for_completion();
    auto expected = [&](size_t i) { return reduced(size, rank * it.count + i, op); };
    out += compare("reduce_scatter " + it.where(), apart.values(), expected);
    it.communicator.reduce_scatter(in.all(), in.part(rank * it.count, it.count), op);
    it.communicator.wait_for_completion();
    auto all = in.values();
    auto begin = all.begin() + static_cast<ptrdiff_t>(rank * it.count);
    out +=
        compare("reduce_scatter in place " + it.where(), {begin, begin + static_cast<ptrdiff_t>(it.count)}, expected);
  }
  return out;
}

inline std::string check_all_gather(const ContractCase& it) {
  int size = it.communicator.size();
  auto rank = static_cast<size_t>(it.communicator.rank());
  auto expected = [&](size_t i) { return value_of(static_cast<int>(i / it.count), i % it.count); };
  TestBuffer in(it.memory, it.dtype, values_of(it.communicator.rank(), it.count));
  TestBuffer out(it.memory, it.dtype, std::vector<double>(it.count * static_cast<size_t>(size), 77));
  it.communicator.all_gather(in.all(), out.all());
  it.communicator.wait_for_completion();
  std::string text = compare("all_gather " + it.where(), out.values(), expected);

  std::vector<double> mine(it.count * static_cast<size_t>(size), 99);
  auto own = values_of(it.communicator.rank(), it.count);
  std::copy(own.begin(), own.end(), mine.begin() + static_cast<ptrdiff_t>(rank * it.count));
  TestBuffer in_place(it.memory, it.dtype, mine);
  it.communicator.all_gather(in_place.part(rank * it.count, it.count), in_place.all());
  it.communicator.wait_for_completion();
  return text + compare("all_gather in place " + it.where(), in_place.values(), expected);
}

inline std::string check_all_to_all(const ContractCase& it) {
  const auto size = static_cast<size_t>(it.communicator.size()), rank = static_cast<size_t>(it.communicator.rank());
  TestBuffer in(it.memory, it.dtype, values_of(it.communicator.rank(), it.count * size));
  TestBuffer out(it.memory, it.dtype, std::vector<double>(it.count * size, 77));
  it.communicator.all_to_all(in.all(), out.all());
  it.communicator.wait_for_completion();
  return compare("all_to_all " + it.where(), out.values(),
                 [&](size_t i) { return value_of(static_cast<int>(i / it.count), rank * it.count + i % it.count); });
}

inline std::string check_broadcast(const ContractCase& it) {
  std::string out;
  for (int root = 0; root < it.communicator.size(); ++root) {
    TestBuffer buffer(it.memory, it.dtype, values_of(it.communicator.rank(), it.count));
    it.communicator.broadcast(buffer.all(), root);
    it.communicator.wait_for_completion();
    out += compare("broadcast " + it.where(), buffer.values(), [&](size_t i) { return value_of(root, i); });
  }
  return out;
}

// Everybody sends to the next rank; even ranks send first, so that no cycle of waits closes.
inline std::string check_send_receive(const ContractCase& it) {
  int rank = it.communicator.rank(), size = it.communicator.size();
  if (size == 1) return "";
  TestBuffer out(it.memory, it.dtype, values_of(rank, it.count)), in(it.memory, it.dtype, it.count);
  int next = (rank + 1) % size, before = (rank + size - 1) % size;
  auto send = [&] { it.communicator.send(out.all(), next); };
  auto receive = [&] { it.communicator.receive(in.all(), before); };
  if (rank % 2 == 0) {
    send();
    receive();
  } else {
    receive();
    send();
  }
  it.communicator.wait_for_completion();
  return compare("send and receive " + it.where(), in.values(), [&](size_t i) { return value_of(before, i); });
}

// The n-th message from one member to another: length and values follow from the pair and n.
struct ContractMessage {
  size_t count;
  std::vector<double> values;
};
inline ContractMessage message_of_pair(int from, int to, int number, size_t count) {
  const size_t length = number % 3 == 2 ? 0 : count + static_cast<size_t>(number + from);  // some are empty
  return {length, values_of(from * 5 + to * 2 + number, length)};
}

// Everybody sends three messages to every other member and receives three, in one exchange. Members list their parts in
// different orders: only the order within a pair counts.
inline std::string check_exchange_with_all(const ContractCase& it) {
  constexpr int kMessages = 3;
  const int rank = it.communicator.rank(), size = it.communicator.size();
  std::deque<TestBuffer> out, in;
  std::vector<comm::Outgoing> sends;
  std::vector<comm::Incoming> receives;
  std::vector<std::pair<int, int>> received;  // source and number
  for (int number = 0; number < kMessages; ++number) {
    for (int step = 1; step < size; ++step) {
      const int peer = rank % 2 == 0 ? (rank + step) % size : (rank + size - step) % size;
      const auto sent = message_of_pair(rank, peer, number, it.count);
      sends.push_back({out.emplace_back(it.memory, it.dtype, sent.values).all(), peer});
      const auto expected = message_of_pair(peer, rank, number, it.count);
      receives.push_back({in.emplace_back(it.memory, it.dtype, expected.count).all(), peer});
      received.emplace_back(peer, number);
    }
  }
  it.communicator.exchange(sends, receives);
  it.communicator.wait_for_completion();
  std::string text;
  for (size_t i = 0; i < received.size(); ++i) {
    const auto expected = message_of_pair(received[i].first, rank, received[i].second, it.count);
    text += compare(fmt::format("exchange with {} {}", received[i].first, it.where()), in[i].values(),
                    [&](size_t element) { return expected.values[element]; });
  }
  return text;
}

// All send to the next rank and receive from the one before, in one exchange.
inline std::string check_exchange_in_a_ring(const ContractCase& it) {
  const int rank = it.communicator.rank(), size = it.communicator.size();
  if (size == 1) return "";
  const int next = (rank + 1) % size, before = (rank + size - 1) % size;
  TestBuffer out(it.memory, it.dtype, values_of(rank, it.count)), in(it.memory, it.dtype, it.count);
  const comm::Outgoing send{out.all(), next};
  const comm::Incoming receive{in.all(), before};
  it.communicator.exchange({&send, 1}, {&receive, 1});
  it.communicator.wait_for_completion();
  return compare("exchange in a ring " + it.where(), in.values(), [&](size_t i) { return value_of(before, i); });
}

// A member that sends and receives in one exchange meets one that does so one after the other, in either order.
inline std::string check_exchange_meets_pair_of_calls(const ContractCase& it) {
  const int rank = it.communicator.rank(), peer = 1 - rank;
  if (it.communicator.size() == 1 || rank > 1) return "";
  std::string text;
  for (const bool receives_first : {true, false}) {
    TestBuffer to(it.memory, it.dtype, values_of(rank + 1, it.count)), from(it.memory, it.dtype, it.count);
    if (rank == 0) {
      const comm::Outgoing one{to.all(), peer};
      const comm::Incoming other{from.all(), peer};
      it.communicator.exchange({&one, 1}, {&other, 1});
    } else if (receives_first) {
      it.communicator.receive(from.all(), peer);
      it.communicator.send(to.all(), peer);
    } else {
      it.communicator.send(to.all(), peer);
      it.communicator.receive(from.all(), peer);
    }
    it.communicator.wait_for_completion();
    text += compare("exchange with a pair of calls " + it.where(), from.values(),
                    [&](size_t i) { return value_of(peer + 1, i); });
  }
  return text;
}

inline std::string check_exchanges(const ContractCase& it) {
  it.communicator.exchange({}, {});
  return check_send_receive(it) + check_exchange_meets_pair_of_calls(it) + check_exchange_with_all(it) +
         check_exchange_in_a_ring(it);
}

// The whole contract but failures; the large size at the end takes several pieces.
inline std::string check_contract(Communicator& communicator, Memory& memory) {
  std::string out;
  if (communicator.rank() < 0 || communicator.rank() >= communicator.size()) out += "rank out of range\n";
  // Before anything else, since back ends connect pairs of members when they first use them.
  out += check_exchange_meets_pair_of_calls({communicator, memory, DType::kFloat32, 65536});
  for (auto dtype : {DType::kFloat32, DType::kBFloat16, DType::kFloat16, DType::kInt64, DType::kUInt8}) {
    for (size_t count : {0, 1, 3, 17, 4099, 33333}) {
      ContractCase it{communicator, memory, dtype, count};
      out += check_all_reduce(it);
      out += check_reduce_scatter(it);
      out += check_all_gather(it);
      out += check_all_to_all(it);
      out += check_broadcast(it);
      out += check_exchanges(it);
    }
  }
  ContractCase large{communicator, memory, DType::kFloat32, 1100001};
  out += check_all_reduce(large) + check_reduce_scatter(large) + check_all_gather(large) + check_all_to_all(large) +
         check_exchange_meets_pair_of_calls(large) + check_exchange_in_a_ring(large);
  for (int i = 0; i < 20; ++i) communicator.barrier();
  return out;
}

// Loops over a collective until it fails; says when and how.
inline std::string lose_a_peer(const RankContext& context, Communicator& communicator, Memory& memory) {
  TestBuffer buffer(memory, DType::kFloat32, std::vector<double>(2000003, 0.0));
  communicator.barrier();
  std::atomic<bool> announced = false;
  std::thread announcer;
  for (int round = 0; round < 1000000; ++round) {
    try {
      communicator.all_reduce(buffer.all(), ReduceOp::kSum);
      communicator.wait_for_completion();
    } catch (const PeerError& error) {
      double seen = now_seconds();
      std::string again = "no error at a later call";
      try {
        communicator.all_reduce(buffer.all(), ReduceOp::kSum);
        communicator.wait_for_completion();
      } catch (const PeerError& second) {
        again = second.what();
      }
      return fmt::format("{:.6f} {} | {}", seen, error.what(), again);
    }
    if (round == 3 && !announced.exchange(true)) context.announce();
  }
  return "nobody died";
}

enum class Awaited { kAllReduce, kAllToAll, kExchange };

// Waits in a collective for a rank that never comes and is killed there.
inline std::string wait_for_the_dead(const RankContext& context, int victim, Communicator& communicator, Memory& memory,
                                     Awaited awaited = Awaited::kAllReduce) {
  const std::vector<double> ones(100 * static_cast<size_t>(context.size), 1.0);
  TestBuffer buffer(memory, DType::kFloat32, ones), other(memory, DType::kFloat32, ones);
  if (context.rank == victim) {
    communicator.barrier();
    context.announce();
    for (;;) ::pause();
  }
  try {
    communicator.barrier();  // the victim may be dead before all others have left it
    if (awaited == Awaited::kAllToAll) communicator.all_to_all(buffer.all(), other.all());
    if (awaited == Awaited::kExchange) {
      const comm::Outgoing send{buffer.all(), victim};
      const comm::Incoming receive{other.all(), victim};
      communicator.exchange({&send, 1}, {&receive, 1});
    }
    communicator.all_reduce(buffer.all(), ReduceOp::kSum);
    communicator.wait_for_completion();
  } catch (const PeerError& error) {
    return fmt::format("{:.6f} {} | {}", now_seconds(), error.what(), error.what());
  }
  return "nobody died";
}

inline void check_death(const ProcessGroup& group, int victim) {
  for (int rank = 0; rank < static_cast<int>(group.reports.size()); ++rank) {
    if (rank == victim) continue;
    const auto& text = group.reports[static_cast<size_t>(rank)].text;
    INFO("rank " << rank << " says: " << text);
    double seen = std::strtod(text.c_str(), nullptr);
    CHECK(seen > group.killed_at);
    CHECK(seen - group.killed_at < 1.0);
    CHECK_THAT(text, Catch::Contains(" rank " + std::to_string(victim) + " on ") ||
                         Catch::Contains("rank " + std::to_string(victim) + ":"));
    size_t bar = text.find('|');
    REQUIRE(bar != std::string::npos);
    CHECK_THAT(text.substr(bar), Catch::Contains("rank " + std::to_string(victim)));
  }
  CHECK(WIFSIGNALED(group.reports[static_cast<size_t>(victim)].status));
}

// A wait asks until it is told that the point is reached, and ends when something goes wrong.
inline std::string check_wait_until(Communicator& communicator) {
  int asked = 0;
  communicator.wait_until([&] { return ++asked == 3; });
  if (asked != 3) return fmt::format("asked {} times", asked);
  std::thread aborting([&] { communicator.abort("the test says stop"); });
  std::string got = "no error";
  try {
    communicator.wait_until([] { return false; });
  } catch (const PeerError& error) {
    got = error.what();
  }
  aborting.join();
  return got.find("the test says stop") == std::string::npos ? "the wait ended with: " + got : "";
}

// abort() by another thread ends a wait for a message that nobody sends.
inline std::string check_abort(Communicator& communicator, Memory& memory) {
  TestBuffer buffer(memory, DType::kInt64, 5);
  communicator.barrier();
  int other = communicator.rank() == 0 ? 1 : 0;
  std::string got = "no error";
  std::thread aborting([&] { communicator.abort("the test says stop"); });
  try {
    communicator.receive(buffer.all(), other);
    communicator.wait_for_completion();
  } catch (const PeerError& error) {
    got = error.what();
  }
  aborting.join();
  communicator.abort("a second reason");
  if (got.find("the test says stop") == std::string::npos) return "the wait ended with: " + got;
  try {
    communicator.barrier();
  } catch (const PeerError& error) {
    return std::string(error.what()).find("the test says stop") == std::string::npos ? error.what() : "";
  }
  return "a call after abort() went through";
}

}  // namespace dslaunch::test
