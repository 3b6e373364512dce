#include "comm/gloo/slice_exchange.hpp"

#include <algorithm>

#include "comm/gloo/rank_ordered_sum.hpp"

namespace dslaunch::comm {

namespace {

constexpr size_t kPieceBytes = 1 << 20;

}  // namespace

std::vector<size_t> even_slices(size_t count, int size) {
  auto n = static_cast<size_t>(size);
  std::vector<size_t> begins{0};
  for (size_t i = 0; i < n; ++i) begins.push_back(begins.back() + count / n + (i < count % n ? 1 : 0));
  return begins;
}

SliceExchange::SliceExchange(FullMesh& mesh, const Call& call, Plan plan, std::vector<char>& scratch)
    : call_(call), plan_(std::move(plan)), element_bytes_(size_of(plan_.dtype)) {
  size_t longest = 0;
  for (int i = 0; i < plan_.size; ++i) longest = std::max(longest, plan_.begins[i + 1] - plan_.begins[i]);
  piece_elements_ = std::min(longest, kPieceBytes / element_bytes_);
  num_pieces_ = longest == 0 ? 0 : (longest + piece_elements_ - 1) / piece_elements_;

  size_t half_bytes = piece_elements_ * element_bytes_;
  size_t total_bytes = plan_.begins.back() * element_bytes_;
  size_t own_bytes = (plan_.begins[plan_.rank + 1] - plan_.begins[plan_.rank]) * element_bytes_;
  scratch.resize(std::max(scratch.size(), 2 * half_bytes * static_cast<size_t>(plan_.size - 1)));
  for (int rank = 0; rank < plan_.size; ++rank) {
    if (rank == plan_.rank) continue;
    Peer peer;
    peer.rank = rank;
    peer.contribution = FullMesh::Region(mesh, plan_.in, total_bytes);
    for (int i : {0, 1}) {
      peer.scratch[i] = scratch.data() + (2 * peers_.size() + static_cast<size_t>(i)) * half_bytes;
      peer.half[i] = FullMesh::Region(mesh, peer.scratch[i], half_bytes);
    }
    if (plan_.spread) {
      peer.result = FullMesh::Region(mesh, plan_.spread, total_bytes);
      peer.spread = FullMesh::Region(mesh, plan_.out, own_bytes);
    }
    peers_.push_back(std::move(peer));
  }
}

SliceExchange::Range SliceExchange::piece_of(int slice, size_t piece) const {
  size_t begin = std::min(plan_.begins[slice] + piece * piece_elements_, plan_.begins[slice + 1]);
  size_t end = std::min(begin + piece_elements_, plan_.begins[slice + 1]);
  return {begin * element_bytes_, (end - begin) * element_bytes_};
}

void SliceExchange::run() {
  if (num_pieces_ == 0) return;
  contribute(0);
  for (size_t piece = 0; piece < num_pieces_; ++piece) {
    if (piece + 1 < num_pieces_) contribute(piece + 1);
    reduce(piece);
    if (plan_.spread) spread(piece);
  }
  drain();
}

void SliceExchange::contribute(size_t piece) {
  size_t own_bytes = piece_of(plan_.rank, piece).bytes;
  // Post receives first: a sender that finds them posted needs no second round.
  for (Peer& peer : peers_) {
    if (own_bytes) peer.half[piece % 2].receive(peer.rank, call_.tag(Call::kContribute, piece), 0, own_bytes);
  }
  for (Peer& peer : peers_) {
    Range theirs = piece_of(peer.rank, piece);
    if (theirs.bytes == 0) continue;
    peer.contribution.send(peer.rank, call_.tag(Call::kContribute, piece), theirs.offset_bytes, theirs.bytes);
    ++peer.contributions_sent;
  }
}

void SliceExchange::reduce(size_t piece) {
  Range own = piece_of(plan_.rank, piece);
  if (own.bytes == 0) return;
  std::vector<const void*> inputs(static_cast<size_t>(plan_.size));
  inputs[static_cast<size_t>(plan_.rank)] = static_cast<const char*>(plan_.in) + own.offset_bytes;
  for (Peer& peer : peers_) {
    call_.wait_received(peer.half[piece % 2], peer.rank);
    inputs[static_cast<size_t>(peer.rank)] = peer.scratch[piece % 2];
  }
  size_t within_slice = own.offset_bytes - plan_.begins[plan_.rank] * element_bytes_;
  reduce_in_order(inputs.data(), inputs.size(), static_cast<char*>(plan_.out) + within_slice,
                  own.bytes / element_bytes_, plan_.dtype, plan_.op);
}

// A peer's result is received into the same memory from which our contribution was sent to that peer: the result can
// arrive only after the peer has the whole contribution, so nothing is overwritten too early.
void SliceExchange::spread(size_t piece) {
  Range own = piece_of(plan_.rank, piece);
  for (Peer& peer : peers_) {
    Range theirs = piece_of(peer.rank, piece);
    if (theirs.bytes == 0) continue;
    peer.result.receive(peer.rank, call_.tag(Call::kSpread, piece), theirs.offset_bytes, theirs.bytes);
    ++peer.results_received;
  }
  if (own.bytes == 0) return;
  size_t within_slice = own.offset_bytes - plan_.begins[plan_.rank] * element_bytes_;
  for (Peer& peer : peers_) {
    peer.spread.send(peer.rank, call_.tag(Call::kSpread, piece), within_slice, own.bytes);
    ++peer.results_sent;
  }
}

void SliceExchange::drain() {
  for (Peer& peer : peers_) {
    for (; peer.results_received; --peer.results_received) call_.wait_received(peer.result, peer.rank);
  }
  for (Peer& peer : peers_) {
    for (; peer.contributions_sent; --peer.contributions_sent) call_.wait_sent(peer.contribution, peer.rank);
    for (; peer.results_sent; --peer.results_sent) call_.wait_sent(peer.spread, peer.rank);
  }
}

}  // namespace dslaunch::comm
