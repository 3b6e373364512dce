#include "comm/gloo/communicator.hpp"

#include <gloo/common/error.h>

#include <cstring>

#include "base/error.hpp"
#include "comm/collective.hpp"
#include "comm/gloo/call.hpp"
#include "comm/gloo/rank_ordered_sum.hpp"
#include "comm/gloo/slice_exchange.hpp"

namespace dslaunch::comm {

namespace {

// Up to this size every member sends everything to every other member: one round of messages instead of two.
constexpr size_t kSmallBytes = 32 << 10;
// The store reports the rank that died; Gloo may only know a neighbour that gave up because of it.
constexpr std::chrono::milliseconds kPeerLossDelay{300};
constexpr uint64_t kPointToPoint = uint64_t{1} << 63;

size_t count_of(int size) {
  return static_cast<size_t>(size);
}

std::vector<int> all_but(int rank, int size) {
  std::vector<int> others;
  for (int other = 0; other < size; ++other) {
    if (other != rank) others.push_back(other);
  }
  return others;
}

}  // namespace

GlooCommunicator::GlooCommunicator(const CommunicatorOptions& options, rendezvous::Store& store)
    : options_(options),
      others_(all_but(options.rank, options.size)),
      abort_flag_(watch_peers(store)),
      mesh_(std::make_unique<FullMesh>(options, store, *abort_flag_, Deadline::after(options.timeout))) {}

template <class Body>
void GlooCommunicator::collective(const char* verb, const ConstBuffer& buffer, Body&& body) {
  check_buffer(buffer);
  std::string what = describe_call(verb, buffer, options_.name);
  const HostCalls::Scope pending(calls_, what);
  run({std::move(what), pending.number, options_.timeout, Deadline::after(options_.timeout)}, body);
}

template <class Body>
void GlooCommunicator::run(const Call& call, Body&& body) {
  abort_flag_->check(call.what);
  try {
    body(call);
  } catch (const gloo::Exception& error) {
    if (!abort_flag_->wait_until_tripped(kPeerLossDelay))
      abort_flag_->trip(std::string("lost a connection: ") + error.what());
    abort_flag_->check(call.what);
  } catch (const TimeoutError& error) {
    abort_flag_->trip(error.what());
    throw;
  }
}

void GlooCommunicator::all_reduce(Buffer buffer, ReduceOp op) {
  collective("all_reduce", buffer, [&](const Call& call) {
    if (buffer.count == 0) return;
    if (num_bytes_in(buffer) <= kSmallBytes) return all_reduce_small(call, buffer, op);
    SliceExchange::Plan plan{options_.rank, options_.size, buffer.dtype, op, even_slices(buffer.count, options_.size),
                             buffer.data,   nullptr,       buffer.data};
    plan.out = static_cast<char*>(buffer.data) + plan.begins[count_of(options_.rank)] * size_of(buffer.dtype);
    SliceExchange(*mesh_, call, std::move(plan), scratch_).run();
  });
}

void GlooCommunicator::all_reduce_small(const Call& call, const Buffer& buffer, ReduceOp op) {
  size_t bytes = num_bytes_in(buffer);
  scratch_.resize(std::max(scratch_.size(), bytes * count_of(options_.size)));
  std::vector<FullMesh::Region> received(count_of(options_.size));
  std::vector<const void*> inputs(count_of(options_.size), buffer.data);
  FullMesh::Region own(*mesh_, buffer.data, bytes);
  for (int peer : others_) {
    char* scratch = scratch_.data() + count_of(peer) * bytes;
    inputs[count_of(peer)] = scratch;
    received[count_of(peer)] = FullMesh::Region(*mesh_, scratch, bytes);
    received[count_of(peer)].receive(peer, call.tag(Call::kContribute), 0, bytes);
  }
  for (int peer : others_) own.send(peer, call.tag(Call::kContribute), 0, bytes);
  for (int peer : others_) call.wait_received(received[count_of(peer)], peer);
  for (int peer : others_) call.wait_sent(own, peer);  // the result replaces what is being sent
  reduce_in_order(inputs.data(), inputs.size(), buffer.data, buffer.count, buffer.dtype, op);
}

void GlooCommunicator::reduce_scatter(ConstBuffer in, Buffer out, ReduceOp op) {
  check_reduce_scatter(in, out, options_.size);
  collective("reduce_scatter", in, [&](const Call& call) {
    SliceExchange::Plan plan{options_.rank, options_.size, in.dtype, op, even_slices(in.count, options_.size),
                             in.data,       out.data,      nullptr};
    SliceExchange(*mesh_, call, std::move(plan), scratch_).run();
  });
}

void GlooCommunicator::all_gather(ConstBuffer in, Buffer out) {
  check_all_gather(in, out, options_.size);
  collective("all_gather", in, [&](const Call& call) { exchange_parts(call, in, 0, out); });
}

void GlooCommunicator::all_to_all(ConstBuffer in, Buffer out) {
  check_all_to_all(in, out, options_.size);
  collective("all_to_all", in,
             [&](const Call& call) { exchange_parts(call, in, num_bytes_in(in) / count_of(options_.size), out); });
}

// The data for member r begins at r * stride_bytes of `in`; the data from member r is the r-th part of `out`.
void GlooCommunicator::exchange_parts(const Call& call, const ConstBuffer& in, size_t stride_bytes, const Buffer& out) {
  const size_t bytes = num_bytes_in(out) / count_of(options_.size);
  if (bytes == 0) return;
  const auto part_of = [&](int rank) { return static_cast<char*>(out.data) + count_of(rank) * bytes; };
  const char* own_parts = static_cast<const char*>(in.data) + count_of(options_.rank) * stride_bytes;
  if (part_of(options_.rank) != own_parts) std::memcpy(part_of(options_.rank), own_parts, bytes);
  std::vector<FullMesh::Region> received(count_of(options_.size));
  for (int peer : others_) {
    received[count_of(peer)] = FullMesh::Region(*mesh_, part_of(peer), bytes);
    received[count_of(peer)].receive(peer, call.tag(Call::kSpread), 0, bytes);
  }
  FullMesh::Region own(*mesh_, in.data, num_bytes_in(in));
  for (int peer : others_) own.send(peer, call.tag(Call::kSpread), count_of(peer) * stride_bytes, bytes);
  for (int peer : others_) call.wait_received(received[count_of(peer)], peer);
  for (int peer : others_) call.wait_sent(own, peer);
}

void GlooCommunicator::broadcast(Buffer buffer, int root) {
  check_member(root, options_.size);
  collective("broadcast", buffer, [&](const Call& call) {
    size_t bytes = num_bytes_in(buffer);
    if (bytes == 0) return;
    FullMesh::Region region(*mesh_, buffer.data, bytes);
    if (root != options_.rank) {
      region.receive(root, call.tag(Call::kSpread), 0, bytes);
      return call.wait_received(region, root);
    }
    for (int peer : others_) region.send(peer, call.tag(Call::kSpread), 0, bytes);
    for (int peer : others_) call.wait_sent(region, peer);
  });
}

// Gloo's own thread makes all transfers progress at the same time.
void GlooCommunicator::exchange(std::span<const Outgoing> sends, std::span<const Incoming> receives) {
  check_exchange(sends, receives, options_.rank, options_.size);
  struct Transfer {
    ConstBuffer buffer;
    int peer = 0;
    uint64_t tag = 0;
    FullMesh::Region region = {};
  };
  std::vector<Transfer> incoming, outgoing;
  std::vector<Message> messages;
  for (const auto& [buffer, source] : receives) {
    if (buffer.count == 0) continue;
    messages.push_back(exchanges_.count(source, options_.rank));
    incoming.push_back({buffer, source, kPointToPoint | messages.back().number});
  }
  for (const auto& [buffer, destination] : sends) {
    if (buffer.count == 0) continue;
    messages.push_back(exchanges_.count(options_.rank, destination));
    outgoing.push_back({buffer, destination, kPointToPoint | messages.back().number});
  }
  if (messages.empty()) return;

  const Call call{describe_exchange(sends, receives, options_.name), exchanges_.next_exchange(), options_.timeout,
                  Deadline::after(options_.timeout)};
  const HostCalls::Scope pending(calls_, call.what, call.number, std::move(messages));
  run(call, [&](const Call&) {
    const auto open = [&](Transfer& each) {
      each.region = FullMesh::Region(*mesh_, each.buffer.data, num_bytes_in(each.buffer));
    };
    // Receives first: a sender that finds them posted needs no second round.
    for (auto& each : incoming) {
      open(each);
      each.region.receive(each.peer, each.tag, 0, num_bytes_in(each.buffer));
    }
    for (auto& each : outgoing) {
      open(each);
      each.region.send(each.peer, each.tag, 0, num_bytes_in(each.buffer));
    }
    for (auto& each : incoming) call.wait_received(each.region, each.peer);
    for (auto& each : outgoing) call.wait_sent(each.region, each.peer);
  });
}

CallState GlooCommunicator::calls() const {
  CallState state = calls_.state();
  state.messages = exchanges_.counts();
  return state;
}

void GlooCommunicator::barrier() {
  uint8_t token = 1;
  collective("barrier", Buffer{&token, 1, DType::kUInt8}, [&](const Call& call) {
    all_reduce_small(call, {&token, 1, DType::kUInt8}, ReduceOp::kMax);
  });
}

}  // namespace dslaunch::comm
