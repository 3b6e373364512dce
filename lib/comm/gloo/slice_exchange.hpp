// The pipelined exchange behind all_reduce and reduce_scatter: member r owns slice r, receives all members' parts of
// it, reduces them in rank order, and (all_reduce) sends the result to all. It works piece by piece: one piece is
// reduced while the next is in transit, and scratch memory is limited to two pieces per peer.
#pragma once
#include <vector>

#include "comm/gloo/call.hpp"

namespace dslaunch::comm {

class SliceExchange {
 public:
  struct Plan {
    int rank = 0, size = 1;
    DType dtype = DType::kFloat32;
    ReduceOp op = ReduceOp::kSum;
    std::vector<size_t> begins;  // first element of each slice, and the end
    const void* in = nullptr;    // all slices
    void* out = nullptr;         // where this member's own result goes
    void* spread = nullptr;      // all slices, if every member needs all results; then `out` lies within it
  };

  SliceExchange(FullMesh& mesh, const Call& call, Plan plan, std::vector<char>& scratch);
  void run();

 private:
  struct Range {
    size_t offset_bytes = 0, bytes = 0;
  };
  struct Peer {
    int rank = 0;
    FullMesh::Region contribution, half[2], result, spread;
    char* scratch[2] = {};
    size_t contributions_sent = 0, results_received = 0, results_sent = 0;
  };

  Range piece_of(int slice, size_t piece) const;
  void contribute(size_t piece);
  void reduce(size_t piece);
  void spread(size_t piece);
  void drain();

  const Call& call_;
  const Plan plan_;
  const size_t element_bytes_;
  size_t piece_elements_ = 0, num_pieces_ = 0;
  std::vector<Peer> peers_;  // in rank order, without this rank
};

// Splits n elements into `size` slices whose lengths differ by at most one: returns the begins and the end.
std::vector<size_t> even_slices(size_t count, int size);

}  // namespace dslaunch::comm
