// The pipelined exchange behind all_reduce and reduce_scatter: member r owns slice r, receives everybody's part of it,
// reduces in the order of ranks, and (all_reduce) spreads the result. It goes piece by piece: while one is reduced the
// next is on its way, and scratch memory stays at two pieces a peer.
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
    void* out = nullptr;         // where the own slice's result goes
    void* spread = nullptr;      // all slices, when every member shall have all results; then `out` lies in it
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
  std::vector<Peer> peers_;  // in order of rank, without this one
};

// n elements in `size` slices that differ by one at most: the begins and the end.
std::vector<size_t> even_slices(size_t count, int size);

}  // namespace dslaunch::comm
